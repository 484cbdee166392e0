import pytest
import torch
import torch.nn.functional as F

from fewshift.nets.adapters import add_to_centre, resnet18_adapters
from fewshift.nets.backbone import freeze
from fewshift.nets.resnet import ResNet18


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(("size", "reach"), [(6, 1), (11, 1), (21, 1), (28, 1), (41, 1), (11, 0), (12, 2)])
def test_the_centre_tap_is_a_parallel_branch(stride: int, size: int, reach: int) -> None:
    generator = torch.Generator().manual_seed(size)
    side = 2 * reach + 1
    x, kernel, adapter = (
        torch.randn(*shape, generator=generator, dtype=torch.float64)
        for shape in ((2, 3, size, size + 1), (6, 3, side, side), (6, 3))
    )
    folded = F.conv2d(x, add_to_centre(kernel, adapter), stride=stride, padding=reach)
    branch = F.conv2d(x, kernel, stride=stride, padding=reach) + F.conv2d(
        x, adapter[..., None, None], stride=stride
    )
    torch.testing.assert_close(folded, branch, rtol=0, atol=1e-12)


def test_sites_and_sizes_of_the_published_adapters() -> None:
    adapters = resnet18_adapters()
    start = adapters.init(freeze(ResNet18()).frozen)
    assert adapters.sites == tuple(start)
    assert len(adapters.sites) == 17
    assert adapters.sites[0] == "layer1.0.conv1"
    assert adapters.sites[-1] == "last"
    assert start["layer2.0.conv1"].shape == (128, 64)
    assert sum(a.numel() for site, a in start.items() if site != "last") == 1_220_608


def test_starting_values() -> None:
    start = resnet18_adapters().init(freeze(ResNet18(width=4)).frozen)
    assert torch.equal(start["layer4.0.conv1"], 1e-4 * torch.eye(32, 16))
    assert torch.equal(start["layer1.1.conv2"], 1e-4 * torch.eye(4))
    assert torch.equal(start["last"], torch.eye(32))


def test_merging_changes_the_sites_alone_and_no_input() -> None:
    backbone = freeze(ResNet18(width=4))
    before = {name: tensor.clone() for name, tensor in backbone.frozen.items()}
    params = {site: torch.randn_like(start) for site, start in backbone.init().items()}
    merged = backbone.adapters.merge(backbone.frozen, params)
    changed = {name.removesuffix(".weight") for name in merged if not torch.equal(merged[name], before[name])}
    assert changed == set(backbone.sites)
    for name, tensor in before.items():
        assert torch.equal(backbone.frozen[name], tensor)


def test_zero_adapters_change_nothing() -> None:
    backbone = freeze(ResNet18(width=4))
    zeros = {site: torch.zeros_like(start) for site, start in backbone.init().items()} | {
        "last": torch.eye(32)
    }
    images = torch.randn(2, 3, 28, 28)
    assert torch.equal(backbone(zeros, images), backbone.embed(images))
