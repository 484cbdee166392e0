"""BOHB: successive halving whose configurations a density model proposes (Falkner et al., ICML 2018).

Many configurations are trained for a short while, the best third for three times as long, and so on. The
first ones are drawn at random; once enough are scored, two thirds of the next ones are drawn where good ones
are dense and others are not. Configurations are points of the unit cube. Numbers as stated in the paper: a
third at each halving, the best 15 % count as good, 64 candidates, kernels three times as wide for drawing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fewshift.errors import FewshiftError

Point: TypeAlias = tuple[float, ...]  # in the unit cube
Evaluate: TypeAlias = Callable[[int, Point, float], float]  # number, point, share of the budget -> score

ETA = 3
GOOD = 0.15
CANDIDATES = 64
WIDER = 3.0
NARROWEST = 1e-3
AT_RANDOM = 1 / 3


@dataclass(frozen=True)
class Trial:
    """A configuration trained with a share of the budget, and how well it did."""

    number: int
    point: Point
    share: float
    score: float


@dataclass(frozen=True)
class Searched:
    """All trials, in order, and the best one among those with the whole budget."""

    best: Trial
    trials: tuple[Trial, ...]


def rungs(configurations: int, levels: int = 3) -> list[tuple[int, float]]:
    """How many configurations are trained with which share of the budget.

    >>> rungs(27)
    [(27, 0.1111111111111111), (9, 0.3333333333333333), (3, 1.0)]
    """
    return [
        (max(1, configurations // ETA**level), float(ETA) ** (level + 1 - levels)) for level in range(levels)
    ]


def search(
    evaluate: Evaluate, configurations: int, dimensions: int, seed: int = 0, levels: int = 3
) -> Searched:
    """One bracket, one trial after the other; the same seed and scores give the same trials."""
    if configurations < 1:
        raise FewshiftError(f"search: {configurations} configurations: give 1 or more")
    plan = rungs(configurations, levels)
    alive: list[Trial] = []
    for number in range(configurations):
        point = proposal(seed, number, dimensions, alive)
        alive.append(Trial(number, point, plan[0][1], evaluate(number, point, plan[0][1])))
    trials = list(alive)
    for count, share in plan[1:]:
        best = sorted(alive, key=lambda trial: (-trial.score, trial.number))[:count]
        alive = [Trial(t.number, t.point, share, evaluate(t.number, t.point, share)) for t in best]
        trials += alive
    return Searched(max(alive, key=lambda trial: (trial.score, -trial.number)), tuple(trials))


def proposal(seed: int, number: int, dimensions: int, scored: Sequence[Trial]) -> Point:
    """The next configuration, from those scored so far."""
    generator = np.random.default_rng([seed, number])
    fewest = dimensions + 1
    if len(scored) < fewest + 2 or generator.uniform() < AT_RANDOM:
        return tuple(generator.uniform(size=dimensions).tolist())
    ranked = [t.point for t in sorted(scored, key=lambda trial: (-trial.score, trial.number))]
    split = max(fewest, int(GOOD * len(ranked)))
    good, bad = np.array(ranked[:split]), np.array(ranked[-max(fewest, len(ranked) - split) :])
    centres = good[generator.integers(len(good), size=CANDIDATES)]
    spread = WIDER * widths(good)
    candidates = _inside(generator, centres, spread)
    ratio = log_density(candidates, good) - log_density(candidates, bad)
    return tuple(candidates[int(ratio.argmax())].tolist())


def widths(points: NDArray[np.float64]) -> NDArray[np.float64]:  # (n, d) -> (d,)
    """Kernel widths by the normal reference rule."""
    count, dimensions = points.shape
    rule = 1.06 * points.std(axis=0) * count ** (-1 / (4 + dimensions))
    return np.asarray(np.maximum(rule, NARROWEST))


def log_density(
    places: NDArray[np.float64], points: NDArray[np.float64]
) -> NDArray[np.float64]:  # (m, d), (n, d) -> (m,)
    """The logarithm of a Gaussian kernel density of the points."""
    spread = widths(points)
    apart = (places[:, None] - points[None]) / spread
    each = (
        -0.5 * (apart**2).sum(axis=2) - np.log(spread).sum() - 0.5 * points.shape[1] * math.log(2 * math.pi)
    )
    top = each.max(axis=1)
    return np.asarray(top + np.log(np.exp(each - top[:, None]).mean(axis=1)))


def _inside(
    generator: np.random.Generator, centres: NDArray[np.float64], spread: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Gaussian draws around centres, reflected at the cube's walls."""
    drawn = np.abs(generator.normal(centres, spread)) % 2
    return np.where(drawn > 1, 2 - drawn, drawn)
