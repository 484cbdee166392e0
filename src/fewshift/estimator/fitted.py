"""What a fit leaves: a classifier for one task as a value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray
from torch import Tensor

from fewshift.core.centroids import cosine_logits
from fewshift.estimator.hints import Hint
from fewshift.estimator.unknown import Familiar
from fewshift.types import TaskParams


@dataclass(frozen=True)
class Settings:
    """How far to go, and why."""

    rates: tuple[float, float]  # of the adapters and of the last map
    steps: int
    why: str
    frozen: bool = False  # the network as it is, without even the starting values


@dataclass(frozen=True)
class Fitted:
    """Everything that predictions need besides the frozen backbone.

    Features are `engine.embed(params, images)`; logits are `scale` times their cosine to `prototypes`.
    """

    classes: NDArray[Any]  # (way,) labels as the user gave them
    params: TaskParams  # adapted; empty: the frozen network itself
    prototypes: Tensor  # (way, d)
    counts: tuple[int, ...]  # support images of each class
    scale: float  # of the cosine: calibrated, 10 where nothing could be measured
    familiar: Familiar  # how near images of the classes lie, for the unknown score
    settings: Settings
    coefficients: Mapping[str, float] = field(default_factory=dict)
    losses: tuple[float, ...] = ()  # before each step
    hints: tuple[Hint, ...] = ()  # about the support set; not saved

    def cosines(self, features: Tensor) -> Tensor:  # (n, d) -> (n, way)
        """How near each feature is to each class."""
        return cosine_logits(features, self.prototypes, 1.0)

    def logits(self, features: Tensor) -> Tensor:  # (n, d) -> (n, way)
        """Calibrated logits: their softmax is the probability of each class."""
        return cosine_logits(features, self.prototypes, self.scale)

    def probabilities(self, cosines: Tensor) -> Tensor:  # (n, way) -> (n, way) float64
        """The softmax of the calibrated logits."""
        return (self.scale * cosines.double()).softmax(dim=1)
