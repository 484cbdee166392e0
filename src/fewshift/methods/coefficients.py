"""How much of each training domain a task is, read from its support images (Eq. 6 and 11)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from fewshift.core.coefficients import task_coefficients
from fewshift.nets.backbone import Backbone
from fewshift.nets.last_map import features_below
from fewshift.nets.set_encoder import DatasetClassifier, FeatureClassifier

# Support images to coefficients (k,) over the training domains, or None where that is not known.
Coefficients: TypeAlias = Callable[[Tensor], Tensor | None]


def no_coefficients(images: Tensor) -> None:
    """For methods and kits without a dataset classifier."""


@dataclass(frozen=True)
class FromClassifier:
    """A trained dataset classifier's coefficients."""

    classifier: DatasetClassifier | FeatureClassifier
    backbone: Backbone  # whose features some classifiers read instead of images

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:  # (n, 3, h, w) -> (k,)
        """Eq. 11 on the logits of Eq. 6."""
        if isinstance(self.classifier, FeatureClassifier):
            images = features_below(self.backbone)(images)
        return task_coefficients(self.classifier(images))


def named(coefficients: Tensor, domains: tuple[str, ...]) -> Mapping[str, float]:
    """Coefficients by domain, short enough for a result line."""
    return {d: round(c, 4) for d, c in zip(domains, coefficients.tolist(), strict=True)}
