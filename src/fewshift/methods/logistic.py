"""Logistic regression on frozen unit features: what most people try first.

Tian et al., ECCV 2020 ("a good embedding is all you need"). Confirmed from code (WangYueFt/rfs): features of
length 1, multinomial, scikit-learn's default penalty C = 1. Here the optimum comes from our own solver, equal
to scikit-learn's by test. Ours: support images enter as they are. The release fits on five varied copies of
each (cropped, recoloured, mirrored), which also lets its penalty weigh a fifth.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fewshift.core.centroids import unit
from fewshift.core.logistic import fit_logistic
from fewshift.methods.about import About
from fewshift.methods.task import checked
from fewshift.nets.backbone import Backbone
from fewshift.nets.engine import Engine
from fewshift.nets.kit import Kit
from fewshift.types import Adapted, Task

ABOUT = About(
    title="logistic regression on frozen features",
    source="Tian et al., ECCV 2020",
    fidelity="inferred",
    moves="a linear head",
    cost="one forward pass, Newton steps on features",
    features_only=True,
)


@dataclass(frozen=True)
class LogisticRegression:
    """A penalised linear head at its optimum."""

    backbone: Backbone
    strength: float = 1.0  # scikit-learn's C
    name: str = "logistic"

    def adapt(self, task: Task) -> Adapted:
        """The head that fits the support features best."""
        task = checked(task)
        features = unit(self.backbone.embed(task.support.images))
        head = fit_logistic(features, task.support.labels, task.way, self.strength)

        @torch.no_grad()
        def logits(images: Tensor) -> Tensor:  # (n, 3, h, w) -> (n, way)
            return head(unit(self.backbone.embed(images)))

        return Adapted(logits, {"oracle": False})


def build(kit: Kit, engine: Engine | None = None, oracle: bool = True) -> LogisticRegression:
    """Logistic regression on a kit's backbone; engine and oracle make no difference to it."""
    return LogisticRegression(kit.backbone)
