"""Meta-gradients on features against their definition."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fewshift.core.losses import inner_objective, scored_outer_objective
from fewshift.core.metagrad import meta_gradient
from fewshift.nets.adapters import adapters_at
from fewshift.nets.backbone import Backbone, freeze
from fewshift.nets.last_map import LastMap
from fewshift.training.fastest import best_meta_gradients
from fewshift.training.last_map_descent import by_features
from fewshift.training.metagradients import Job
from fewshift.training.settings import InnerLevel
from fewshift.types import Address, Episode, Labelled, Task

DIM = 12


def numbers(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def map_alone() -> Backbone:
    net = LastMap(DIM).double()
    net.last.weight.data.copy_(torch.eye(DIM) + 0.1 * numbers(DIM, DIM, seed=2))
    return freeze(net, adapters_at(net, ()))


@pytest.mark.parametrize("count", [9, 30])  # fewer and more images than channels
@pytest.mark.parametrize("order", [1, 2])
def test_meta_gradients_on_features_are_those_of_the_definition(order: int, count: int) -> None:
    backbone = map_alone()
    support = Labelled(numbers(count, DIM, seed=0), torch.arange(count) % 3)
    query = Labelled(numbers(6, DIM, seed=1), torch.arange(6) % 3)
    episode = Episode(Task(support, 3), query, Address(0, "x", "train", 0), (0, 1, 2))
    start, inner = backbone.init(), InnerLevel(rate=0.7, steps=3, order=2 if order == 2 else 1)
    matrices = {site: torch.eye(DIM) + 0.2 * numbers(DIM, DIM, seed=3) for site in start}  # not symmetric
    wanted = meta_gradient(
        inner_objective(backbone, episode.task),
        scored_outer_objective(backbone, episode),
        start,
        matrices,
        inner.rates(start, backbone.sites[-1]),
        inner.steps,
        inner.order,
    )
    ways = best_meta_gradients(backbone)
    assert ways is by_features
    (found,) = ways([Job(episode, matrices, start)], inner, True)
    (site,) = start
    for mine, theirs in (
        (found.loss, wanted.loss),
        (found.preconditioner[site], wanted.preconditioner[site]),
        (found.start[site], wanted.start[site]),
        (found.final[site], wanted.final[site]),
        (found.inner_losses, wanted.inner_losses),
        (found.accuracy, wanted.accuracy),
    ):
        torch.testing.assert_close(mine, theirs)
    assert not found.preconditioner[site].requires_grad
    assert not found.final[site].requires_grad
