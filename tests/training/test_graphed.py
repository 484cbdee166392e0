"""Graphed meta-gradients are the definition's, on padded buffers."""

from typing import Literal

import pytest
import torch

from fewshift.nets.backbone import Backbone, freeze
from fewshift.nets.resnet import ResNet18
from fewshift.training.graphed import GraphedBatches
from fewshift.training.metagradients import FoldedOneByOne, Job, OneByOne, is_finite, only_finite
from fewshift.training.settings import InnerLevel
from fewshift.types import Address, Episode, Labelled, Task


def a_backbone(device: str) -> Backbone:
    torch.manual_seed(3)
    net = ResNet18(4)
    with torch.no_grad():
        net(torch.randn(16, 3, 28, 28))
    return freeze(net).to(device, torch.float64)


def an_episode(support: int, query: int, way: int, device: str) -> Episode:
    generator = torch.Generator().manual_seed(support)
    means = torch.randn(way, 3, 28, 28, generator=generator, dtype=torch.float64)

    def some(count: int) -> Labelled:
        labels = torch.arange(count) % way
        noise = torch.randn(count, 3, 28, 28, generator=generator, dtype=torch.float64)
        return Labelled((means[labels] + noise).to(device), labels.to(device))

    return Episode(Task(some(support), way), some(query), Address(0, "d", "train", 0), tuple(range(way)))


def compare(device: str, captured: bool, order: Literal[1, 2] = 1, starts: bool = False) -> None:
    backbone = a_backbone(device)
    start = backbone.init()
    generator = torch.Generator().manual_seed(1)
    roots = {
        s: 0.2 * torch.randn(len(v), len(v), generator=generator, dtype=torch.float64)
        for s, v in start.items()
    }
    matrices = {s: (m.T @ m + torch.eye(len(m), dtype=m.dtype)).to(device) for s, m in roots.items()}
    jobs = [
        Job(an_episode(n, q, way, device), matrices, start)
        for n, q, way in ((9, 6, 3), (20, 10, 5), (9, 6, 3))
    ]
    inner = InnerLevel(order=order, last_rate=0.3)
    graphed = GraphedBatches(backbone, captured=captured, room=48)(jobs, inner, starts=starts)
    for found, wanted in zip(graphed, OneByOne(backbone)(jobs, inner, starts=starts), strict=True):
        torch.testing.assert_close(found.loss, wanted.loss, rtol=0, atol=1e-9)
        torch.testing.assert_close(found.inner_losses, wanted.inner_losses, rtol=0, atol=1e-9)
        assert found.accuracy is not None
        assert wanted.accuracy is not None
        assert float(found.accuracy) == pytest.approx(float(wanted.accuracy))
        for site, pull in wanted.preconditioner.items():
            torch.testing.assert_close(found.preconditioner[site], pull, rtol=0, atol=1e-9)
            torch.testing.assert_close(found.start[site], wanted.start[site], rtol=0, atol=1e-9)


@pytest.mark.parametrize(("order", "starts"), [(1, False), (2, False), (2, True)])
def test_batches_give_the_same_meta_gradients(order: Literal[1, 2], starts: bool) -> None:
    compare("cpu", captured=False, order=order, starts=starts)


def test_the_last_map_has_its_rate_wherever_it_stands() -> None:
    """A kit's file brings its starting values in another order than the network's."""
    backbone = a_backbone("cpu")
    start = backbone.init()
    identity = {site: torch.eye(len(value), dtype=value.dtype) for site, value in start.items()}
    turned, inner = dict(reversed(start.items())), InnerLevel(last_rate=0.3)
    ways = (OneByOne(backbone), FoldedOneByOne(backbone), GraphedBatches(backbone, captured=False))
    for way in ways:
        jobs = [Job(an_episode(9, 6, 3, "cpu"), identity, values) for values in (start, turned)]
        one, other = way(jobs, inner, starts=False)
        torch.testing.assert_close(other.inner_losses, one.inner_losses, rtol=0, atol=1e-12)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("order", [1, 2])
def test_captured_graphs_give_the_same_meta_gradients(order: Literal[1, 2]) -> None:
    compare("cuda", captured=True, order=order)


def test_a_task_with_numbers_that_are_not_finite_adds_nothing_and_spoils_no_other() -> None:
    backbone = a_backbone("cpu")
    start = backbone.init()
    identity = {site: torch.eye(len(value), dtype=value.dtype) for site, value in start.items()}
    good, bad = an_episode(9, 6, 3, "cpu"), an_episode(10, 6, 3, "cpu")
    bad.query.images[2, 1, 5, 5] = torch.nan
    jobs = [Job(episode, identity, start) for episode in (good, bad, good)]
    inner = InnerLevel()
    batch = list(GraphedBatches(backbone, captured=False, room=64)(jobs, inner, starts=True))
    singly = [only_finite(found, starts=True) for found in OneByOne(backbone)(jobs, inner, starts=True)]
    for found, wanted, usable in zip(batch, singly, (True, False, True), strict=True):
        assert found.usable is not None
        assert bool(found.usable) is usable
        assert bool(is_finite(wanted, starts=True)) is usable
        for site, pull in wanted.preconditioner.items():
            torch.testing.assert_close(found.preconditioner[site], pull, rtol=0, atol=1e-9)
            torch.testing.assert_close(found.start[site], wanted.start[site], rtol=0, atol=1e-9)
    assert all(not pull.any() for pull in batch[1].preconditioner.values())
