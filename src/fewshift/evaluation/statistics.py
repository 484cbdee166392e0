"""Means, intervals, paired differences and ranks: arithmetic on accuracies, nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum, sqrt
from typing import TypeVar

Z = 1.96  # normal quantile of a 95 % interval, as Meta-Dataset prints it

Name = TypeVar("Name")


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean and the half-width of its 95 % interval; `n` tasks (or domains) went into it."""

    mean: float
    half: float
    n: int

    @property
    def excludes_zero(self) -> bool:
        """Does the interval leave out zero? For a difference: is its sign clear at the 95 % level?

        A single task gives an interval of no width, which makes nothing clear.
        """
        return 0 < self.half < abs(self.mean)


def interval(values: Sequence[float]) -> Interval:
    """The mean ± 1.96·sd/√n with the population's sd (divided by n), Meta-Dataset's rule.

    >>> interval([0.0, 1.0])
    Interval(mean=0.5, half=0.6929646455628166, n=2)
    """
    n = len(values)
    if n == 0:
        raise ValueError("an interval needs at least one value")
    mean = fsum(values) / n
    variance = fsum((v - mean) ** 2 for v in values) / n
    return Interval(mean, Z * sqrt(variance) / sqrt(n), n)


def paired(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Interval | None:
    """The mean difference over the tasks both have, task by task; None when they share none."""
    differences = [ours[task] - theirs[task] for task in sorted(ours.keys() & theirs.keys())]
    return interval(differences) if differences else None


def combined(intervals: Iterable[Interval]) -> Interval | None:
    """The unweighted mean over domains. Tasks of two domains are independent, so half-widths add in squares.

    It says how well the mean over *these* domains is known, not how a new domain would fare.
    """
    parts = list(intervals)
    if not parts:
        return None
    k = len(parts)
    return Interval(fsum(p.mean for p in parts) / k, sqrt(fsum(p.half**2 for p in parts)) / k, k)


def competition_ranks(means: Mapping[Name, float]) -> dict[Name, float]:
    """Ranks as papers print them: by the percentage at one decimal, ties share the best rank (1, 2, 2, 4).

    >>> competition_ranks({"a": 0.90, "b": 0.8004, "c": 0.80, "d": 0.7})
    {'a': 1.0, 'b': 2.0, 'c': 2.0, 'd': 4.0}
    """
    printed = {name: float(f"{100 * mean:.1f}") for name, mean in means.items()}
    return {name: 1.0 + sum(other > own for other in printed.values()) for name, own in printed.items()}


def fractional_ranks(intervals: Mapping[Name, Interval]) -> dict[Name, float]:
    """Ranks as on Meta-Dataset's leaderboard: what cannot be told apart from the best one left ties with it.

    The best remaining method and all whose difference from it is within 1.96·√(sd²/n + sd²/n) share the mean
    of the ranks they take up; then the rest are ranked among themselves.
    """
    left = sorted(intervals, key=lambda name: -intervals[name].mean)  # stable: equal means keep their order
    ranks: dict[Name, float] = {}
    while left:
        best = intervals[left[0]]
        tied = [
            m for m in left if best.mean - intervals[m].mean <= sqrt(best.half**2 + intervals[m].half ** 2)
        ]
        shared = len(ranks) + 1 + (len(tied) - 1) / 2
        ranks.update(dict.fromkeys(tied, shared))
        left = [m for m in left if m not in ranks]
    return ranks


def mean_ranks(by_domain: Iterable[Mapping[Name, float]]) -> dict[Name, float]:
    """The average of each method's ranks over the domains it has results for."""
    gathered: dict[Name, list[float]] = {}
    for ranks in by_domain:
        for name, rank in ranks.items():
            gathered.setdefault(name, []).append(rank)
    return {name: fsum(ranks) / len(ranks) for name, ranks in gathered.items()}
