"""Adam as an update rule of the inner loop."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from fewshift.types import Rates, TaskParams


@dataclass(frozen=True)
class AdamState:
    """Running means of gradients and of their squares, and how many steps were taken."""

    means: TaskParams
    squares: TaskParams
    steps: int


@dataclass(frozen=True)
class Adam:
    """What most people fine-tune with; the same numbers as `torch.optim.Adam`."""

    rates: Rates
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    def init(self, params: TaskParams) -> AdamState:
        """Both running means at zero."""
        zeros = {site: torch.zeros_like(param) for site, param in params.items()}
        return AdamState(zeros, zeros, 0)

    def step(
        self, params: TaskParams, gradients: TaskParams, state: AdamState
    ) -> tuple[TaskParams, AdamState]:
        """One step at every site; all sites in one call, since a network's weights are many and small."""
        (first, second), steps = self.betas, state.steps + 1
        found = [gradients[site] for site in params]
        means = torch._foreach_lerp([state.means[site] for site in params], found, 1 - first)
        squares = torch._foreach_mul([state.squares[site] for site in params], second)
        squares = torch._foreach_addcmul(squares, found, found, value=1 - second)
        spreads = torch._foreach_div(torch._foreach_sqrt(squares), (1 - second**steps) ** 0.5)
        moves = [-self.rates[site] / (1 - first**steps) for site in params]
        moved = torch._foreach_addcdiv(
            list(params.values()), means, torch._foreach_add(spreads, self.eps), moves
        )
        return named(params, moved), AdamState(named(params, means), named(params, squares), steps)


def named(like: TaskParams, values: Iterable[Tensor]) -> TaskParams:
    """Values in the order of a dictionary's names, under those names."""
    return dict(zip(like, values, strict=True))
