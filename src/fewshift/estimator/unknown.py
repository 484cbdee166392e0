"""Is an image unlike every class? Judged by its best cosine against those of held-out support images."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import torch
from torch import Tensor

from fewshift.core.centroids import cosine_logits
from fewshift.estimator.trials import HeldOut

LIMIT = 0.95  # a score above this: farther off than about 19 of 20 images of the classes would be
LEAST_SPREAD = 0.02  # of the cosine: a handful of images can lie closer together by chance


@dataclass(frozen=True)
class Familiar:
    """How near images of the classes lie to their nearest prototype: mean and spread of that cosine."""

    mean: float
    spread: float
    limit: float = LIMIT

    @property
    def below(self) -> float:
        """The cosine at which the score is at its limit."""
        return self.mean - self.spread * NormalDist().inv_cdf(self.limit)

    def scores(self, cosines: Tensor) -> Tensor:  # (n, way) -> (n,)
        """From 0, as near as can be, to 1, unlike any class; half the images of the classes are below 0.5."""
        best = cosines.double().amax(dim=1)
        scores: Tensor = torch.special.ndtr((self.mean - best) / self.spread)
        return scores


def familiar(found: HeldOut) -> Familiar:
    """From the best cosines of held-out images, as a new image's best cosine will be judged."""
    best = found.cosines.double().amax(dim=1)
    spread = float(best.std()) if len(best) > 1 else 0.0
    return Familiar(float(best.mean()), max(spread, LEAST_SPREAD) * widening(len(best)))


def widening(count: int) -> float:
    """By how much the spread of so many images is widened, so that the limit means what it says.

    Mean and spread are themselves uncertain: a prediction interval takes Student's quantile (here by its
    series, two hundredths too low for four images and exact for more) in place of the normal one.

    >>> [round(widening(count), 2) for count in (4, 10, 100)]
    [1.57, 1.17, 1.01]
    """
    z, free = NormalDist().inv_cdf(LIMIT), max(1, count - 1)
    student = z + (z**3 + z) / (4 * free) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * free**2)
    return student / z * math.sqrt(1 + 1 / count)


@dataclass(frozen=True)
class Between:
    """Where the best cosines of images lie between that of two neighbouring prototypes (0) and 1 (1).

    With one image a class nothing can be held out, so a kit says how it was on its validation tasks. How far
    classes lie apart depends on the adaptation, and this place moves with it.
    """

    mean: float = 0.5  # half-way, where no kit says more
    spread: float = 0.25


HALF_WAY = Between()


def places_between(cosines: Tensor, prototypes: Tensor) -> Tensor:  # (n, way), (way, d) -> (n,)
    """Each image's place in the sense of `Between`."""
    nearest = _between_prototypes(prototypes)
    return (cosines.double().amax(dim=1) - nearest) / max(1 - nearest, LEAST_SPREAD)


def familiar_from_prototypes(prototypes: Tensor, usual: Between = HALF_WAY) -> Familiar:  # (way, d)
    """With one image per class: as far from the nearest prototype as images usually are with this kit."""
    nearest = _between_prototypes(prototypes)
    room = 1 - nearest
    return Familiar(nearest + usual.mean * room, max(usual.spread * room, LEAST_SPREAD))


def _between_prototypes(prototypes: Tensor) -> float:
    """The cosine of a prototype and its nearest neighbour, on average."""
    cosines = cosine_logits(prototypes, prototypes, 1.0).double()
    cosines.fill_diagonal_(-1.0)
    return float(cosines.amax(dim=1).mean())
