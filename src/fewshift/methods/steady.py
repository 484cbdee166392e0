"""Descent that does not overshoot: where the support loss rises above its start, the rates are halved.

Rates that are best over many validation tasks are too large for some. Here a descent whose support loss was
ever a tenth above where it began, or no number, is begun again at half the rates, three times at most. Where
it never was, nothing differs from the tuned method, to the bit. Only the support set is looked at. Our own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from fewshift.methods.about import About
from fewshift.methods.gd import ABOUT_TUNED as GD_TUNED
from fewshift.methods.gd import GradientDescent
from fewshift.methods.gd import build_tuned as gd_tuned
from fewshift.methods.rates import Chosen, Pair, RateRule
from fewshift.methods.tsp import TaskSpecificPreconditioning
from fewshift.methods.tsp_start import ABOUT_TUNED as TSP_START_TUNED
from fewshift.methods.tsp_start import build_tuned as tsp_start_tuned
from fewshift.nets.engine import Engine
from fewshift.nets.kit import Kit
from fewshift.types import Adapted, Task

OVERSHOT = 1.1  # times the first loss
SLACK = 1e-5  # losses are kept to five decimals


def about(tuned: About) -> About:
    """What the steady form of a method says of itself."""
    return replace(
        tuned,
        title=f"{tuned.title}, halved for a task while they overshoot",
        source="Fewshift",
        fidelity="our own",
        cost=f"{tuned.cost}, up to four times where steps overshoot",
    )


ABOUT = about(TSP_START_TUNED)
ABOUT_GD = about(GD_TUNED)


def overshot(losses: Sequence[float]) -> bool:
    """Was the loss ever clearly above where it began, or no number?"""
    return not all(loss <= OVERSHOT * losses[0] + SLACK for loss in losses)


@dataclass(frozen=True)
class Slower:
    """The rates of another rule times a factor."""

    rule: RateRule
    factor: float

    def __call__(self, task: Task, coefficients: Tensor | None) -> Chosen:
        """The rates of this task."""
        chosen = self.rule(task, coefficients)
        return Chosen(Pair(*(self.factor * rate for rate in chosen.rates)), chosen.oracle)


@dataclass(frozen=True)
class Steady:
    """A descent, begun again at half its rates while it overshoots."""

    method: GradientDescent | TaskSpecificPreconditioning
    name: str
    halvings: int = 3

    @property
    def engine(self) -> Engine:
        """That of the descent: several tasks may share it."""
        return self.method.engine

    def adapt(self, task: Task) -> Adapted:
        """The first descent that did not overshoot, or else the slowest; `notes` say which."""
        halved, adapted = 0, self.method.adapt(task)
        while overshot(adapted.notes["losses"]) and halved < self.halvings:
            halved += 1
            slower = Slower(self.method.rates, 0.5**halved)
            adapted = replace(self.method, rates=slower).adapt(task)
        return Adapted(adapted.logits, {**adapted.notes, "halved": halved})


def build(kit: Kit, engine: Engine | None = None, oracle: bool = True) -> Steady:
    """TSP† from learned starting values at tuned rates, or slower."""
    return Steady(tsp_start_tuned(kit, engine, oracle), "tsp_start_steady")


def build_gd(kit: Kit, engine: Engine | None = None, oracle: bool = True) -> Steady:
    """Plain descent at tuned rates, or slower: what the guard alone is worth."""
    return Steady(gd_tuned(kit, engine, oracle), "gd_steady")
