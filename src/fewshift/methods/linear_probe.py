"""A linear head on frozen features, trained for a hundred steps: the Baseline of the few-shot literature.

Chen et al., ICLR 2019. Confirmed from code (wyharveychen/CloserLookFewShot): a linear layer with bias on
features as they are, weight decay 0.001, 100 passes over the support set. Our own: the head starts at zero
instead of at random, and a pass is one full-batch step of Adam at 0.01 instead of SGD on fours in random
order, so that a task gives the same numbers each time whatever the features' scale.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from fewshift.core.descent import descend
from fewshift.core.updates import Adam
from fewshift.methods.about import About
from fewshift.methods.descent import rounded
from fewshift.methods.task import checked
from fewshift.nets.backbone import Backbone
from fewshift.nets.engine import Engine
from fewshift.nets.kit import Kit
from fewshift.types import Adapted, Task, TaskParams

ABOUT = About(
    title="linear probe on frozen features",
    source="Chen et al., ICLR 2019 (Baseline), with full-batch Adam",
    fidelity="our own",
    moves="a linear head",
    cost="one forward pass, 100 steps on features",
    features_only=True,
)


@dataclass(frozen=True)
class LinearProbe:
    """A linear head by Adam."""

    backbone: Backbone
    rate: float = 0.01
    decay: float = 0.001
    steps: int = 100
    name: str = "linear_probe"

    def adapt(self, task: Task) -> Adapted:
        """The head after `steps` steps from zero."""
        task = checked(task)
        features = self.backbone.embed(task.support.images)

        def loss(params: TaskParams) -> Tensor:
            penalty = self.decay / 2 * sum(param.square().sum() for param in params.values())
            logits = F.linear(features, params["weight"], params["bias"])
            return F.cross_entropy(logits, task.support.labels) + penalty

        start = {
            "weight": features.new_zeros(task.way, features.shape[1]),
            "bias": features.new_zeros(task.way),
        }
        trajectory = descend(loss, start, Adam(dict.fromkeys(start, self.rate)), self.steps)
        head = trajectory.params

        @torch.no_grad()
        def logits(images: Tensor) -> Tensor:  # (n, 3, h, w) -> (n, way)
            return F.linear(self.backbone.embed(images), head["weight"], head["bias"])

        return Adapted(logits, {"oracle": False, "losses": rounded(trajectory.losses)})


def build(kit: Kit, engine: Engine | None = None, oracle: bool = True) -> LinearProbe:
    """The linear probe on a kit's backbone; engine and oracle make no difference to it."""
    return LinearProbe(kit.backbone)
