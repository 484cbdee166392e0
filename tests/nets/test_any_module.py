from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fewshift.errors import FewshiftError
from fewshift.nets.adapters import adapters_at
from fewshift.nets.any_module import WithLastMap, backbone_from
from fewshift.nets.backbone import Backbone
from fewshift.nets.choice import choose_engine
from fewshift.nets.engine import PlainEngine
from fewshift.nets.last_map import LastMapEngine
from fewshift.nets.plain_classifier import plain_classifier
from fewshift.nets.weights import load_fully
from fewshift.types import Task


class Small(nn.Module):
    """A pointwise, a depthwise and a linear layer, and features at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Conv2d(3, 6, 1)
        self.depth = nn.Conv2d(6, 6, 3, padding=1, groups=6)
        self.norm = nn.BatchNorm2d(6)
        self.line = nn.Linear(6, 5)

    def forward(self, images: Tensor) -> Tensor:
        """(n, 3, h, w) -> (n, 5)"""
        x = torch.relu(self.norm(self.depth(self.wide(images))))
        return torch.relu(self.line(x.mean(dim=(2, 3))))


@pytest.fixture
def small() -> Small:
    torch.manual_seed(0)
    return Small().double()


def test_a_module_gets_a_last_map_and_named_sites(small: Small) -> None:
    backbone = backbone_from(small, ("wide", "line"))
    assert backbone.sites == ("net.wide", "net.line", "last")
    assert backbone.dim == 5
    images = torch.randn(4, 3, 9, 9, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(backbone.embed(images), small.eval()(images), rtol=0, atol=0)
    assert torch.equal(backbone.init()["last"], torch.eye(5, dtype=torch.float64))


def test_adapters_are_branches_beside_their_layers(small: Small) -> None:
    backbone = backbone_from(small, ("wide", "line"))
    images = torch.randn(4, 3, 9, 9, dtype=torch.float64)
    wide, line, last = (torch.randn(*shape, dtype=torch.float64) for shape in ((6, 3), (5, 6), (5, 5)))
    with torch.no_grad():
        small.eval()
        x = small.wide(images) + F.conv2d(images, wide[..., None, None])
        x = torch.relu(small.norm(small.depth(x))).mean(dim=(2, 3))
        wanted = torch.relu(small.line(x) + x @ line.T) @ last.T
        found = backbone({"net.wide": wide, "net.line": line, "last": last}, images)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("site", "sentence"),
    [
        ("depth", "depth cannot carry task parameters: its channels are in 6 groups"),
        ("norm", "norm cannot carry task parameters: it is a BatchNorm2d"),
        ("middle", "Wrapped has no layer 'middle': choose among wide, line, last"),
    ],
)
def test_layers_that_cannot_be_sites(small: Small, site: str, sentence: str) -> None:
    class Wrapped(Small):
        def __init__(self) -> None:
            super().__init__()
            self.last = nn.Linear(5, 5)

    with pytest.raises(FewshiftError, match=sentence):
        adapters_at(Wrapped(), (site,))


def test_layers_that_change_their_weight_before_they_use_it() -> None:
    class Standardised(nn.Conv2d):
        def forward(self, x: Tensor) -> Tensor:
            return F.conv2d(x, self.weight - self.weight.mean())

    normed = nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 4, 1))
    for layer, why in ((Standardised(3, 4, 1), "something of its own"), (normed, "computed from other")):
        with pytest.raises(FewshiftError, match=f"net.0 cannot carry task parameters: .*{why}"):
            backbone_from(nn.Sequential(layer, nn.AdaptiveAvgPool2d(1), nn.Flatten()), ("0",))


def test_buffers_that_no_state_lists_travel_too() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 1)
            self.register_buffer("scale", torch.zeros(4), persistent=False)

        def forward(self, images: Tensor) -> Tensor:
            features: Tensor = self.conv(images).mean(dim=(2, 3)) * self.scale
            return features

    net = Scaled()
    net.scale += torch.arange(4)
    backbone, images = backbone_from(net, ("conv",)), torch.randn(2, 3, 8, 8)
    plain = plain_classifier(backbone, backbone.init(), torch.eye(4), 1.0)
    torch.testing.assert_close(plain.net(images), backbone(backbone.init(), images))
    empty = WithLastMap(Scaled(), 4)
    load_fully(empty, backbone.frozen, Path("some.kit"))
    torch.testing.assert_close(empty(images), backbone.embed(images))


def test_a_network_stays_where_it_is() -> None:
    backbone = backbone_from(
        nn.Sequential(nn.Conv2d(3, 4, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()).to("meta")
    )
    assert {tensor.device.type for tensor in backbone.frozen.values()} == {"meta"}


def test_strided_and_unpadded_kernels() -> None:
    nets = {
        "ok": nn.Conv2d(3, 4, 3, stride=2, padding=1),
        "unpadded": nn.Conv2d(3, 4, 3),
        "even": nn.Conv2d(3, 4, 4, padding=2),
        "dilated": nn.Conv2d(3, 4, 3, padding=1, dilation=2),
    }
    for name, conv in nets.items():
        net = WithLastMap(nn.Sequential(conv, nn.AdaptiveAvgPool2d(1), nn.Flatten()), 4)
        if name == "ok":
            assert adapters_at(net, ("net.0",)).sites == ("net.0", "last")
        else:
            with pytest.raises(FewshiftError, match="not a square of odd size, padded by half"):
                adapters_at(net, ("net.0",))


def test_an_output_that_is_no_feature_is_refused() -> None:
    with pytest.raises(FewshiftError, match=r"gives \(1, 4, 64, 64\) for one picture, not \(1, dim\)"):
        backbone_from(nn.Conv2d(3, 4, 1))
    with pytest.raises(FewshiftError, match=r"does not take a picture of 8 x 8 .*: give its own size"):
        backbone_from(nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 4)), size=8)


def test_the_engine_follows_the_sites(small: Small, make_task: Callable[..., Task]) -> None:
    def engine_of(backbone: Backbone) -> type:
        return type(choose_engine(backbone))

    assert engine_of(backbone_from(small)) is LastMapEngine
    assert engine_of(backbone_from(small, ("line",))) is PlainEngine
    with pytest.raises(FewshiftError, match=r"last-map engine does not fit .* adapts 1 layers below"):
        choose_engine(backbone_from(small, ("line",)), "last-map")
