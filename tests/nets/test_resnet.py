import pytest
import torch
from torch import nn

from fewshift.nets.resnet import ResNet18, block_names


def test_the_published_size() -> None:
    net = ResNet18()
    last = net.last.weight.numel()
    assert sum(p.numel() for p in net.parameters()) - last == 11_171_904
    assert last == 512 * 512


@pytest.mark.parametrize(("padding", "sizes"), [(1, (41, 21, 11, 6)), (2, (42, 21, 11, 6))])
def test_map_sizes_at_84_pixels(padding: int, sizes: tuple[int, ...]) -> None:
    net = ResNet18(width=2, stem_padding=padding).eval()
    seen: list[int] = []
    stages: list[nn.Module] = [net.layer1, net.layer2, net.layer3, net.layer4]
    for stage in stages:
        stage.register_forward_hook(lambda _module, _inputs, output: seen.append(output.shape[-1]))
    with torch.no_grad():
        features = net(torch.randn(2, 3, 84, 84))
    assert tuple(seen) == sizes
    assert features.shape == (2, 16)


def test_features_start_unaligned_and_non_negative() -> None:
    net = ResNet18(width=4).eval()
    assert torch.equal(net.last.weight, torch.eye(32))
    with torch.no_grad():
        assert (net(torch.randn(3, 3, 28, 28)) >= 0).all()


def test_names_are_those_of_published_checkpoints() -> None:
    names = set(ResNet18(width=2).state_dict())
    assert {"conv1.weight", "bn1.running_var", "layer1.0.conv1.weight", "layer4.1.bn2.bias"} <= names
    assert {"layer2.0.downsample.0.weight", "layer2.0.downsample.1.running_mean"} <= names
    assert not any("layer1.0.downsample" in name for name in names)
    assert block_names() == tuple(f"layer{s}.{b}" for s in (1, 2, 3, 4) for b in (0, 1))


def test_convolutions_start_he_normal_by_fan_out() -> None:
    torch.manual_seed(0)
    net = ResNet18(width=16)
    for name in ("conv1.weight", "layer3.0.conv1.weight", "layer4.0.downsample.0.weight"):
        weight = net.state_dict()[name]
        expected = (2 / (weight.shape[0] * weight.shape[2] * weight.shape[3])) ** 0.5
        assert weight.std().item() == pytest.approx(expected, rel=0.1)
