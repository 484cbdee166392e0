"""MOKD: a linear map that makes support features depend on their labels as much as a kernel can tell.

Tian et al., ICML 2024. Confirmed from code (tmlr-group/MOKD): the map starts at the identity; Gaussian
kernels on unit features and unit one-hot labels, their common bandwidth chosen once per task among fifteen
multiples of the median by HSIC over its standard deviation; 40 steps of Adadelta at 0.25 on
−m·HSIC(Z, Y) + γ·m·HSIC(Z, Z), with weight decay 0.25 on domains trained on; then nearest centroid.

Inferred: the release sets γ by the test setting and the dataset's name (varying shots 1 or 3, five shots 1,
one shot 0), and the rate 1 for two datasets by name. A task has no name here, so γ follows its mean shot
and the rate is 0.25 everywhere. With one image per class the first term is 0 whatever the features are: MOKD
is then nearest centroid on frozen features.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from fewshift.core.centroids import membership, unit
from fewshift.core.descent import descend
from fewshift.core.kernels import hsic, hsic_variance, rbf_gram
from fewshift.core.updates import Adadelta
from fewshift.methods.about import About
from fewshift.methods.descent import rounded
from fewshift.methods.task import centroid_classifier, checked
from fewshift.nets.backbone import Backbone
from fewshift.nets.engine import Engine
from fewshift.nets.kit import Kit
from fewshift.types import Adapted, Task, TaskParams

ABOUT = About(
    title="MOKD, a map by kernel dependence on the labels",
    source="Tian et al., ICML 2024",
    fidelity="inferred",
    moves="one matrix on the features",
    oracle=True,
    cost="one forward pass, 55 kernel matrices",
    features_only=True,
)

MULTIPLIERS = (0.001, 0.01, 0.1, 0.2, 0.25, 0.5, 0.75, 0.8, 0.9, 1.0, 1.25, 1.5, 2.0, 5.0, 10.0)
SEEN_DECAY = 0.25
FEWEST = 4  # samples for which an unbiased HSIC exists
MAP = "map"


@dataclass(frozen=True)
class KernelDependence:
    """One square map by HSIC."""

    backbone: Backbone
    ask_oracle: bool = True  # decay the map on domains trained on?
    rate: float = 0.25
    steps: int = 40
    name: str = "mokd"

    def adapt(self, task: Task) -> Adapted:
        """The map after `steps` steps, then nearest centroid on mapped features."""
        task = checked(task)
        features = self.backbone.embed(task.support.images)
        labels = membership(task.support.labels, task.way, features.dtype)
        start = {MAP: torch.eye(features.shape[1], dtype=features.dtype, device=features.device)}
        balance = balance_of(len(features) / task.way)
        asked = self.ask_oracle and task.seen is not None
        decay = SEEN_DECAY if asked and task.seen else 0.0
        multiplier = chosen_multiplier(unit(features), labels)
        objective = dependence_objective(features, labels, multiplier, balance, decay)
        steps = self.steps if len(features) >= FEWEST else 0
        trajectory = descend(objective, start, Adadelta({MAP: self.rate}), steps)

        def embed(images: Tensor) -> Tensor:
            return F.linear(self.backbone.embed(images), trajectory.params[MAP])

        notes = {"oracle": asked, "bandwidth": float(multiplier), "losses": rounded(trajectory.losses)}
        return Adapted(centroid_classifier(embed, task), notes)


def dependence_objective(
    features: Tensor, labels: Tensor, multiplier: Tensor | float, balance: float, decay: float
) -> Callable[[TaskParams], Tensor]:  # (m, d), (m, way)
    """map -> −m·HSIC(Z, Y) + γ·m·HSIC(Z, Z) + decay/2·‖map‖², Z the mapped features on the unit sphere."""
    size, wanted = len(features), rbf_gram(labels, multiplier)

    def loss(params: TaskParams) -> Tensor:
        given = rbf_gram(unit(F.linear(features, params[MAP])), multiplier)
        dependence = hsic(given, wanted)
        if balance:
            dependence = dependence - balance * hsic(given, given)
        return decay / 2 * params[MAP].square().sum() - size * dependence

    return loss


@torch.no_grad()
def chosen_multiplier(features: Tensor, labels: Tensor, eps: float = 1e-5) -> Tensor:  # -> ()
    """The bandwidth at which HSIC is surest above zero; 1 where no candidate's is."""
    if len(features) < FEWEST:
        return features.new_ones(())
    candidates = features.new_tensor(MULTIPLIERS)
    given, wanted = rbf_gram(features, candidates), rbf_gram(labels, candidates)
    power = hsic(given, wanted) / (hsic_variance(given, wanted) + eps).sqrt()
    best = power.argmax()
    return torch.where(power[best] > 0, candidates[best], torch.ones_like(candidates[best]))


def balance_of(shot: float) -> float:
    """γ by the mean number of images per class: 0 for one, 1 up to five, 3 beyond."""
    return 0.0 if shot <= 1 else 1.0 if shot <= 5 else 3.0


def build(kit: Kit, engine: Engine | None = None, oracle: bool = True) -> KernelDependence:
    """MOKD on a kit's backbone; it moves nothing below the features, so the engine makes no difference."""
    return KernelDependence(kit.backbone, oracle)
