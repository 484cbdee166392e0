"""Adam as an update rule of the inner loop."""

from __future__ import annotations

from dataclasses import dataclass

import torch

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
        """One step at every site."""
        (first, second), steps = self.betas, state.steps + 1
        moved: TaskParams = {}
        means: TaskParams = {}
        squares: TaskParams = {}
        for site, param in params.items():
            gradient = gradients[site]
            means[site] = torch.lerp(state.means[site], gradient, 1 - first)
            squares[site] = torch.addcmul(state.squares[site] * second, gradient, gradient, value=1 - second)
            spread = squares[site].sqrt() / (1 - second**steps) ** 0.5 + self.eps
            moved[site] = torch.addcdiv(
                param, means[site], spread, value=-self.rates[site] / (1 - first**steps)
            )
        return moved, AdamState(means, squares, steps)
