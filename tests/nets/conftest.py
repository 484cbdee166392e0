"""Small networks with lived-in batch statistics, and tasks for them."""

from collections.abc import Callable

import pytest
import torch

from fewshift.nets.backbone import Backbone, freeze
from fewshift.nets.resnet import ResNet18
from fewshift.types import Labelled, Task, TaskParams


@pytest.fixture(scope="session")
def make_backbone() -> Callable[..., Backbone]:
    """width, stem padding, dtype -> a frozen network unlike a fresh one: no scale is 1, no mean is 0."""

    def make(width: int = 4, padding: int = 1, dtype: torch.dtype = torch.float64) -> Backbone:
        torch.manual_seed(width + padding)
        net = ResNet18(width, padding)
        with torch.no_grad():
            for _ in range(3):
                net(torch.randn(16, 3, 28, 28))
            for module in net.modules():
                if isinstance(module, torch.nn.BatchNorm2d):
                    module.weight.uniform_(0.7, 1.3)
                    module.bias.uniform_(-0.2, 0.2)
        return freeze(net).to(dtype=dtype)

    return make


@pytest.fixture(scope="session")
def make_task() -> Callable[..., Task]:
    """Classes that differ, in unequal numbers."""

    def make(images: int = 12, size: int = 28, way: int = 3, dtype: torch.dtype = torch.float64) -> Task:
        generator = torch.Generator().manual_seed(images + size)
        labels = torch.arange(images) % way
        labels[: images // 4] = 0
        labels[-way:] = torch.arange(way)
        means = torch.randn(way, 3, size, size, generator=generator, dtype=torch.float64)
        noise = torch.randn(images, 3, size, size, generator=generator, dtype=torch.float64)
        return Task(Labelled((0.7 * means[labels] + noise).to(dtype), labels), way)

    return make


@pytest.fixture(scope="session")
def jitter() -> Callable[[TaskParams], TaskParams]:
    """Parameters somewhere on their way."""

    def move(params: TaskParams) -> TaskParams:
        generator = torch.Generator().manual_seed(1)
        return {
            site: value + 0.02 * torch.randn(value.shape, generator=generator, dtype=torch.float64).to(value)
            for site, value in params.items()
        }

    return move
