"""Update rules of the inner loop, as values: parameters and gradients in, parameters out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from fewshift.types import Preconditioner, Rates, TaskParams

State = TypeVar("State")


class Update(Protocol[State]):
    """A rule that may remember something between steps, in a state that it is handed back."""

    def init(self, params: TaskParams) -> State:
        """The state before the first step."""
        ...

    def step(self, params: TaskParams, gradients: TaskParams, state: State) -> tuple[TaskParams, State]:
        """The parameters and the state after one step."""
        ...


class Memoryless(ABC):
    """A rule that remembers nothing: it says only where a step leads."""

    @abstractmethod
    def moved(self, params: TaskParams, gradients: TaskParams) -> TaskParams:
        """The parameters after one step."""

    def init(self, params: TaskParams) -> None:
        """Nothing is remembered."""
        return

    def step(self, params: TaskParams, gradients: TaskParams, state: None) -> tuple[TaskParams, None]:
        """One step at every site."""
        return self.moved(params, gradients), None


@dataclass(frozen=True)
class Preconditioned(Memoryless):
    """Eq. 5: theta − β P G, P multiplying from the left. Eq. 9 and 16 are T of these. No P means P = I."""

    preconditioner: Preconditioner | None  # site -> (m, m)
    rates: Rates

    def moved(self, params: TaskParams, gradients: TaskParams) -> TaskParams:
        """theta − β P G at every site."""
        return {site: self._moved(site, param, gradients[site]) for site, param in params.items()}

    def _moved(self, site: str, param: Tensor, gradient: Tensor) -> Tensor:
        if self.preconditioner is None:
            return torch.add(param, gradient, alpha=-self.rates[site])
        return torch.addmm(param, self.preconditioner[site], gradient, alpha=-self.rates[site])


@dataclass(frozen=True)
class TwoSided(Memoryless):
    """θ − β P G Q: Eq. 5 with a second preconditioner, Q, on the side of the inputs. No P means P = I."""

    preconditioner: Preconditioner | None  # site -> (out, out)
    inputs: Preconditioner  # site -> (in, in)
    rates: Rates

    def moved(self, params: TaskParams, gradients: TaskParams) -> TaskParams:
        """θ − β P G Q at every site."""
        evened = {site: gradients[site] @ self.inputs[site] for site in params}
        return Preconditioned(self.preconditioner, self.rates).moved(params, evened)


@dataclass(frozen=True)
class AdadeltaState:
    """Running means of squared gradients and of squared steps."""

    squares: TaskParams
    deltas: TaskParams


@dataclass(frozen=True)
class Adadelta:
    """What TSA and URL's map are adapted with; the same numbers as `torch.optim.Adadelta`.

    With a preconditioner it is fed P G: an ablation of the plain descent in the paper's equations.
    """

    rates: Rates
    rho: float = 0.9
    eps: float = 1e-6
    preconditioner: Preconditioner | None = None

    def init(self, params: TaskParams) -> AdadeltaState:
        """Both running means at zero."""
        zeros = {site: torch.zeros_like(param) for site, param in params.items()}
        return AdadeltaState(zeros, zeros)

    def step(
        self, params: TaskParams, gradients: TaskParams, state: AdadeltaState
    ) -> tuple[TaskParams, AdadeltaState]:
        """One step at every site."""
        moved: TaskParams = {}
        squares: TaskParams = {}
        deltas: TaskParams = {}
        for site, param in params.items():
            gradient = gradients[site]
            if self.preconditioner is not None:
                gradient = self.preconditioner[site] @ gradient
            square = torch.addcmul(state.squares[site] * self.rho, gradient, gradient, value=1 - self.rho)
            delta = (state.deltas[site] + self.eps).sqrt() / (square + self.eps).sqrt() * gradient
            moved[site] = torch.add(param, delta, alpha=-self.rates[site])
            squares[site] = square
            deltas[site] = torch.addcmul(state.deltas[site] * self.rho, delta, delta, value=1 - self.rho)
        return moved, AdadeltaState(squares, deltas)


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
        return _named(params, moved), AdamState(_named(params, means), _named(params, squares), steps)


def _named(like: TaskParams, values: Iterable[Tensor]) -> TaskParams:
    """Values in the order of a dictionary's names, under those names."""
    return dict(zip(like, values, strict=True))


def site_rates(
    sites: Iterable[str], adapters: float, last: float, last_site: str = "last"
) -> dict[str, float]:
    """One rate for the adapters and one for the last map."""
    return {site: last if site == last_site else adapters for site in sites}
