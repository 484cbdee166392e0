"""The plain network is the adapted classifier: same logits, no adapter and no batch norm left."""

from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fewshift.core.centroids import cosine_logits
from fewshift.nets.backbone import Backbone, freeze
from fewshift.nets.lite0 import Lite0
from fewshift.nets.plain_classifier import (
    BATCH_NORM,
    PlainClassifier,
    fold_batch_norms,
    folded_program,
    plain_classifier,
)
from fewshift.nets.resnet import ResNet18
from fewshift.types import TaskParams

SIZE, SCALE = 24, 13.0


def random_norms(net: nn.Module) -> nn.Module:
    """Fresh batch norms do nothing; these do."""
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias)
            nn.init.normal_(module.running_mean)
            nn.init.uniform_(module.running_var, 0.5, 2.0)
    return net


def adapted(dtype: torch.dtype) -> tuple[Backbone, TaskParams, Tensor]:
    torch.manual_seed(0)
    backbone = freeze(random_norms(ResNet18(width=4)).to(dtype))
    params = {site: value + 0.1 * torch.randn_like(value) for site, value in backbone.init().items()}
    return backbone, params, torch.randn(5, backbone.dim, dtype=dtype)


def operations(program: torch.export.ExportedProgram) -> Counter[str]:
    return Counter(str(node.target) for node in program.graph.nodes if node.op == "call_function")


@pytest.mark.slow
def test_the_folded_graph_has_the_adapted_logits_for_any_batch() -> None:
    backbone, params, prototypes = adapted(torch.float64)
    before = backbone.fingerprint()
    plain = plain_classifier(backbone, params, prototypes, SCALE)
    folded = folded_program(plain, SIZE)
    for count in (1, 2, 7):
        images = torch.randn(count, 3, SIZE, SIZE, dtype=torch.float64)
        wanted = cosine_logits(backbone(params, images), prototypes, SCALE)
        torch.testing.assert_close(plain(images), wanted, rtol=0, atol=1e-9)
        torch.testing.assert_close(folded.module()(images), wanted, rtol=0, atol=1e-9)
    found = operations(folded)
    assert found["aten.conv2d.default"] == 20
    assert found["aten.linear.default"] == 1
    assert not any("norm" in name for name in found)
    assert backbone.fingerprint() == before


def test_single_precision_with_probabilities_and_nothing_of_this_machine() -> None:
    backbone, params, prototypes = adapted(torch.float32)
    images = torch.randn(6, 3, SIZE, SIZE)
    wanted = cosine_logits(backbone(params, images), prototypes, SCALE).softmax(dim=1)
    folded = folded_program(plain_classifier(backbone, params, prototypes, SCALE, probabilities=True), SIZE)
    torch.testing.assert_close(folded.module()(images), wanted, rtol=0, atol=1e-5)
    assert not any("stack" in key for node in folded.graph.nodes for key in node.meta)
    (example,), _ = folded.example_inputs
    assert not example.any()


class Odd(nn.Module):
    """What folding must see: a forward that knows no bias, a convolution read twice, a norm first."""

    def __init__(self) -> None:
        super().__init__()
        self.first_norm = nn.BatchNorm2d(3)
        self.unbiased = nn.Conv2d(3, 4, 3, padding=1, bias=False)
        self.unbiased_norm = nn.BatchNorm2d(4)
        self.shared = nn.Conv2d(4, 4, 1)
        self.shared_norm = nn.BatchNorm2d(4)

    def forward(self, images: Tensor) -> Tensor:
        x = F.conv2d(self.first_norm(images), self.unbiased.weight, None, padding=1)
        x = self.shared(torch.relu(self.unbiased_norm(x)))
        return (self.shared_norm(x) + x).mean(dim=(2, 3))


def test_only_what_can_be_folded_is_folded() -> None:
    torch.manual_seed(1)
    net = random_norms(Odd()).double().eval()
    images = torch.randn(3, 3, 8, 8, dtype=torch.float64)
    with torch.no_grad():
        wanted = net(images)
        folded = fold_batch_norms(torch.export.export(net, (images,), strict=False).module())
        torch.testing.assert_close(folded(images), wanted, rtol=0, atol=1e-9)
    left = [node for node in folded.graph.nodes if node.target is BATCH_NORM]
    assert len(left) == 2  # the one on the images, and the one whose convolution is read twice


@pytest.mark.slow
def test_every_batch_norm_of_lite0_is_folded() -> None:
    """Its convolutions have a `forward` of their own, without a bias."""
    torch.manual_seed(2)
    net = random_norms(Lite0()).double().eval()
    plain = PlainClassifier(net, torch.randn(3, net.dim, dtype=torch.float64), SCALE)
    folded = folded_program(plain, SIZE)
    images = torch.randn(2, 3, SIZE, SIZE, dtype=torch.float64)
    torch.testing.assert_close(folded.module()(images), plain(images), rtol=0, atol=1e-9)
    assert not any("norm" in name for name in operations(folded))
