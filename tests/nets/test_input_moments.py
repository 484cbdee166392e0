"""What layers read, watched: as an adapter reads it, and without a trace."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fewshift.core.updates import TwoSided, site_rates
from fewshift.core.whitening import second_moment, whitener
from fewshift.errors import FewshiftError
from fewshift.nets import input_moments as module
from fewshift.nets.adapters import adapters_at
from fewshift.nets.backbone import Backbone, freeze
from fewshift.nets.engine import FoldedEngine, PlainEngine
from fewshift.nets.input_moments import input_moments, rows_of
from fewshift.nets.last_map import LastMapEngine, below_last
from fewshift.types import Task

Make = Callable[..., Backbone]
MakeTask = Callable[..., Task]


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("size", [7, 8])
def test_rows_are_what_an_adapter_reads(stride: int, size: int) -> None:
    layer = torch.nn.Conv2d(3, 4, 3, stride, padding=1, bias=False)
    read, adapter = torch.randn(2, 3, size, size), torch.randn(4, 3)
    beside = F.conv2d(read, adapter[..., None, None], stride=stride)
    torch.testing.assert_close(rows_of(layer, read) @ adapter.T, beside.permute(0, 2, 3, 1).flatten(0, 2))
    tokens = torch.randn(2, 5, 3)
    torch.testing.assert_close(rows_of(torch.nn.Linear(3, 4), tokens), tokens.reshape(10, 3))


def test_moments_of_all_sites_over_chunks(
    make_backbone: Make, make_task: MakeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    backbone, images = make_backbone(4, 2), make_task(7, 41).support.images
    whole = input_moments(backbone, backbone.init(), images)
    monkeypatch.setattr(module, "CHUNK", 3)
    parts = input_moments(backbone, backbone.init(), images)
    assert list(whole) == list(backbone.sites)
    for site, moment in whole.items():
        assert moment.shape == (backbone.init()[site].shape[1],) * 2
        torch.testing.assert_close(parts[site], moment)
    features = below_last(backbone, images)
    frozen = input_moments(backbone, {"last": backbone.init()["last"]}, images)
    torch.testing.assert_close(frozen["last"], second_moment(features))
    assert not any(layer._forward_pre_hooks for layer in backbone.net.modules())


def test_hooks_go_when_a_pass_fails(make_backbone: Make) -> None:
    backbone = make_backbone(4, 2)
    with pytest.raises(RuntimeError):
        input_moments(backbone, backbone.init(), torch.zeros(2, 5, 41, 41, dtype=backbone.dtype))
    assert not any(layer._forward_pre_hooks for layer in backbone.net.modules())


class Small(nn.Module):
    """A network with a last map of its own."""

    def __init__(self, width: int, bias: bool) -> None:
        super().__init__()
        self.first, self.last, self.dim = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8, width, bias=bias), width

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.last(self.first(images).relu().mean((2, 3)))
        return features


@pytest.mark.parametrize(("width", "bias"), [(8, False), (8, True), (5, False)])
def test_a_last_map_of_any_kind(width: int, bias: bool) -> None:
    torch.manual_seed(0)
    net, images = Small(width, bias), torch.randn(6, 3, 12, 12)
    backbone = freeze(net, adapters_at(net, ()))
    wanted = second_moment(net.first(images).relu().mean((2, 3)))
    torch.testing.assert_close(input_moments(backbone, backbone.init(), images)["last"], wanted)


def test_a_weight_that_is_used_without_its_layer_is_named() -> None:
    class Borrowed(Small):
        def forward(self, images: Tensor) -> Tensor:
            return F.linear(self.first(images).mean((2, 3)), self.last.weight)

    net = Borrowed(8, bias=False)
    backbone = freeze(net, adapters_at(net, ("first",)))
    with pytest.raises(FewshiftError, match="what last reads cannot be watched"):
        input_moments(backbone, backbone.init(), torch.randn(2, 3, 12, 12))


def test_engines_agree_on_a_descent_with_both_matrices(make_backbone: Make, make_task: MakeTask) -> None:
    task = make_task(12, 41)
    whole = make_backbone(4, 2)
    last = freeze(whole.net, adapters_at(whole.net, ()))
    for backbone, engines in ((whole, (PlainEngine, FoldedEngine)), (last, (PlainEngine, LastMapEngine))):
        start = backbone.init()
        moments = input_moments(backbone, start, task.support.images)
        generator = torch.Generator().manual_seed(0)
        roots = {s: torch.randn(len(v), len(v), generator=generator, dtype=v.dtype) for s, v in start.items()}
        left = {s: 0.01 * r.T @ r + torch.eye(len(r), dtype=r.dtype) for s, r in roots.items()}
        right = {site: whitener(moment) for site, moment in moments.items()}
        update = TwoSided(left, right, site_rates(start, 0.02, 0.1))
        one, other = (engine(backbone).adapt(task, start, update, 20) for engine in engines)
        torch.testing.assert_close(one.losses, other.losses, rtol=0, atol=1e-9)
        for site in start:
            torch.testing.assert_close(one.params[site], other.params[site], rtol=0, atol=1e-8)
        assert one.losses[-1] < one.losses[0]
