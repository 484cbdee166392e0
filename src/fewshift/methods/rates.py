"""Step sizes at test time, and what they are allowed to know.

The published methods choose their rates by whether the test *domain* was trained on: knowledge that the
protocol hands over and a user does not have. Here that is one rule among others, and every result says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from fewshift.types import Task

SHARPNESS = 20.0  # of the curve over certainty: from a tenth to nine tenths within 0.22 of it


class Pair(NamedTuple):
    """A rate for the adapters and one for the last map."""

    adapters: float
    last: float


class Chosen(NamedTuple):
    """Rates for one task, and whether choosing them took the oracle."""

    rates: Pair
    oracle: bool


# Rates for a task, from what may be known of it: (k,) coefficients, where there is a dataset classifier.
RateRule: TypeAlias = Callable[[Task, Tensor | None], Chosen]


@dataclass(frozen=True)
class BySeen:
    """The oracle: one pair for domains trained on, one for others. Not revealed counts as unseen."""

    seen: Pair
    unseen: Pair

    def __call__(self, task: Task, coefficients: Tensor | None) -> Chosen:
        """The pair of the task's kind of domain."""
        return Chosen(self.seen if task.seen else self.unseen, oracle=task.seen is not None)


@dataclass(frozen=True)
class ByCertainty:
    """No oracle: between the two pairs, by how sure the dataset classifier is of one training domain.

    Certainty is 1 - H(p) / ln K. At `threshold` the rates are the geometric mean of the pairs (the
    arithmetic one where a rate is 0), and they pass from `unseen` to `seen` along a logistic curve around it.
    """

    seen: Pair
    unseen: Pair
    threshold: float = 0.5

    def __call__(self, task: Task, coefficients: Tensor | None) -> Chosen:
        """Rates between the pairs; the unseen pair where there are no coefficients."""
        if coefficients is None:
            return Chosen(self.unseen, oracle=False)
        weight = trust(coefficients, self.threshold)
        pairs = zip(self.seen, self.unseen, strict=True)
        return Chosen(Pair(*(_between(seen, unseen, weight) for seen, unseen in pairs)), oracle=False)


def _between(seen: float, unseen: float, weight: float) -> float:
    """On a logarithmic scale; where a rate is 0, which would silence the other, on a linear one."""
    if seen == 0 or unseen == 0:
        return weight * seen + (1 - weight) * unseen
    return float(seen**weight * unseen ** (1 - weight))


@dataclass(frozen=True)
class Share:
    """How much a task takes of what the domains have learned, or of a preconditioner; the rest is as without.

    A domain that was trained on is worth its own; how much of the others' suits a new domain is for
    validation to say. Without the oracle, certainty decides as it does for rates.
    """

    seen: float = 1.0
    unseen: float = 1.0
    oracle: bool = True
    threshold: float = 0.5

    def __call__(self, task: Task, coefficients: Tensor | None) -> float:
        """A share between 0 and 1; that of new domains where there are no coefficients."""
        if self.oracle:
            return self.seen if task.seen else self.unseen
        if coefficients is None:
            return self.unseen
        weight = trust(coefficients, self.threshold)
        return weight * self.seen + (1 - weight) * self.unseen


ALL_OF_IT, NONE_OF_IT = Share(), Share(0.0, 0.0)


def trust(coefficients: Tensor, threshold: float) -> float:
    """A logistic curve over certainty: 1/2 at the threshold, towards 1 above it."""
    return 1 / (1 + math.exp(-SHARPNESS * (certainty(coefficients) - threshold)))


def certainty(coefficients: Tensor) -> float:
    """1 - H(p) / ln K: 0 for a uniform blend, 1 for one domain; with one domain, its sigmoid itself."""
    if len(coefficients) == 1:
        return float(coefficients)
    entropy = -torch.special.xlogy(coefficients, coefficients).sum()
    return float(1 - entropy / math.log(len(coefficients)))


# Adadelta's rates as published with URL (PA) and TSA; TSP's for the multi-domain setting (Table of Appendix).
PA_RATES = BySeen(seen=Pair(0.0, 0.1), unseen=Pair(0.0, 1.0))
TSA_RATES = BySeen(seen=Pair(0.05, 0.1), unseen=Pair(0.5, 1.0))
TSP_RATES = BySeen(seen=Pair(0.05, 0.30), unseen=Pair(0.25, 0.05))
TSP_RATES_ONE_DOMAIN = BySeen(seen=Pair(0.05, 0.20), unseen=Pair(0.25, 0.05))
