"""P>M>F's fine-tuning: the whole network on varied copies of the support set, at a rate found inside it.

Hu et al., CVPR 2022. Confirmed from code (hushell/pmf_cvpr22, its automatic variant): Adam without decay; the
prototypes come from the clean support set and the loss from varied copies of it. The rate is one of 0,
0.01, 0.001 and 0.0001: each is tried for 50 steps on the first image of every class and scored on the other
support images; ties go to the one tried first, so 0 wins where none is better, as it must at one shot. Then
50 steps on the whole support set. Inferred: the published backbone is a vision transformer meta-trained with
a learned scale; here it is the kit's, with the scale fixed at 10 and batch norm's running statistics.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from fewshift.core.adam import Adam
from fewshift.core.centroids import cosine_logits, prototypes
from fewshift.core.descent import descend
from fewshift.core.pseudo_query import vary
from fewshift.methods.about import About
from fewshift.methods.build import some_weights
from fewshift.methods.descent import rounded
from fewshift.methods.held_out import best_rate, place_in_class
from fewshift.methods.task import centroid_classifier, checked
from fewshift.nets.backbone import Backbone
from fewshift.nets.engine import Engine, PlainEngine
from fewshift.nets.kit import Kit
from fewshift.nets.whole import every_weight, in_suited_layout, moving
from fewshift.types import Adapted, Predictor, Task, TaskParams

ABOUT = About(
    title="P>M>F fine-tuning, its rate chosen inside the support set",
    source="Hu et al., CVPR 2022",
    fidelity="inferred",
    moves="every weight of the backbone",
    cost="150 steps on one image a class, 50 on all, clean and varied",
)


@dataclass(frozen=True)
class PseudoQueryTuning:
    """Adam on every weight, with pseudo-queries."""

    backbone: Backbone  # whose task parameters are its own weights
    rates: tuple[float, ...] = (0.01, 0.001, 0.0001)
    steps: int = 50
    seed: int = 0
    name: str = "pmf"

    def adapt(self, task: Task) -> Adapted:
        """The tuned network's nearest-centroid classifier."""
        task = in_suited_layout(checked(task))
        first = place_in_class(task.support.labels, task.way) == 0
        rate = best_rate(task, first, (0.0, *self.rates), lambda few, rate: self._tuned(few, rate)[0])
        classify, losses = self._tuned(task, rate)
        return Adapted(classify, {"oracle": False, "rates": [rate], "losses": rounded(losses)})

    def _tuned(self, task: Task, rate: float) -> tuple[Predictor, Tensor]:
        start, steps = self.backbone.init(), self.steps if rate else 0
        objective = pseudo_query_objective(self.backbone, task, torch.Generator().manual_seed(self.seed))
        found = descend(objective, start, Adam(dict.fromkeys(start, rate)), steps)
        engine = PlainEngine(self.backbone)
        return centroid_classifier(lambda images: engine.embed(found.params, images), task), found.losses


def pseudo_query_objective(
    features: Callable[[TaskParams, Tensor], Tensor], task: Task, generator: torch.Generator
) -> Callable[[TaskParams], Tensor]:
    """theta -> the loss of varied support images against clean prototypes; new copies at each call."""
    images, labels = task.support.images, task.support.labels

    def loss(params: TaskParams) -> Tensor:
        both = features(params, torch.cat([images, vary(images, generator)]))
        clean, varied = both.chunk(2)
        return F.cross_entropy(cosine_logits(varied, prototypes(clean, labels, task.way)), labels)

    return loss


def build(kit: Kit, engine: Engine | None = None, oracle: bool = True) -> PseudoQueryTuning:
    """P>M>F's last stage on a kit's backbone; the engines for adapters do not know these parameters."""
    return PseudoQueryTuning(moving(kit.backbone, some_weights(kit, "pmf", every_weight)))
