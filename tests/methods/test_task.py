"""What methods take as a task, and which of a backbone's sites is its last map."""

from collections import OrderedDict
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from fewshift.errors import FewshiftError
from fewshift.methods import METHODS
from fewshift.methods.task import checked
from fewshift.nets.adapters import adapters_at
from fewshift.nets.any_module import backbone_from
from fewshift.nets.backbone import freeze
from fewshift.nets.kit import Kit
from fewshift.types import Labelled, Task

IMAGES = torch.randn(7, 3, 16, 16, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([1, 0, 2, 2, 0, 1, 1])


@pytest.mark.parametrize("dtype", [torch.int32, torch.int16, torch.uint8])
def test_labels_of_any_whole_kind_are_the_same_task(dtype: torch.dtype) -> None:
    task = Task(Labelled(IMAGES, LABELS), 3, True)
    other = checked(replace(task, support=Labelled(IMAGES, LABELS.to(dtype))))
    assert other.support.labels.dtype == torch.int64
    assert torch.equal(other.support.labels, LABELS)
    assert (other.way, other.seen) == (3, True)
    assert checked(task) is task


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32])
def test_labels_of_another_kind_are_refused(dtype: torch.dtype) -> None:
    with pytest.raises(FewshiftError, match="one whole number an image"):
        checked(Task(Labelled(IMAGES, (LABELS > 0).to(dtype)), 2))


def test_images_with_a_number_that_is_none_are_refused() -> None:
    images = IMAGES.clone()
    images[3, 1, 2, 2] = torch.nan
    with pytest.raises(FewshiftError, match="not finite"):
        checked(Task(Labelled(images, LABELS), 3))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dim", [4, 3])
@pytest.mark.parametrize("name", ["pa", "gd", "tsa", "mokd"])
def test_without_steps_a_trained_last_map_is_used_once(name: str, dim: int, bias: bool) -> None:
    """A network may end in a `last` of its own that is neither the identity nor square."""
    torch.manual_seed(0)
    layers = {"conv": nn.Conv2d(3, 4, 3), "pool": nn.AdaptiveAvgPool2d(1), "flat": nn.Flatten()}
    kit = Kit(backbone_from(nn.Sequential(OrderedDict(layers, last=nn.Linear(4, dim, bias=bias)))))
    task, method = Task(Labelled(IMAGES, LABELS), 3), METHODS[name](kit)
    unmoved = replace(method, steps=0).adapt(task)(IMAGES)  # type: ignore[type-var]
    torch.testing.assert_close(unmoved, METHODS["ncc"](kit).adapt(task)(IMAGES))
    assert not method.adapt(task)(IMAGES).allclose(unmoved, atol=1e-4)


@pytest.mark.parametrize("name", ["gd", "tsa"])
def test_the_last_map_has_its_rate_whatever_its_name(name: str) -> None:
    class Named(nn.Module):
        def __init__(self, last: str) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.conv = nn.Conv2d(3, 4, 3, padding=1)
            self.add_module(last, nn.Linear(4, 4, bias=False))

        def forward(self, images: Tensor) -> Tensor:
            pooled = torch.relu(self.conv(images)).mean(dim=(2, 3))
            for layer in list(self.children())[1:]:
                pooled = layer(pooled)
            return pooled

    logits = []
    for last in ("last", "fc"):
        net = Named(last)
        method = METHODS[name](Kit(freeze(net, adapters_at(net, ("conv",), last))))
        logits.append(method.adapt(Task(Labelled(IMAGES, LABELS), 3, True))(IMAGES))
    assert torch.equal(*logits)
