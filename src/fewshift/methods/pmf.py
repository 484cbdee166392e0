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
from fewshift.core.losses import accuracy
from fewshift.core.pseudo_query import vary
from fewshift.methods.about import About
from fewshift.methods.descent import rounded
from fewshift.methods.task import centroid_classifier, checked
from fewshift.nets.backbone import Backbone
from fewshift.nets.engine import Engine, PlainEngine
from fewshift.nets.kit import Kit
from fewshift.nets.whole import every_weight, in_suited_layout, moving
from fewshift.types import Adapted, Labelled, Task, TaskParams

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
        rate = self._best_rate(task)
        params, losses = self.backbone.init(), torch.empty(0)
        if rate:
            params, losses = self._tuned(task, rate)
        classify = centroid_classifier(self._embedding(params), task)
        return Adapted(classify, {"oracle": False, "rates": [rate], "losses": rounded(losses)})

    def _best_rate(self, task: Task) -> float:
        """The rate whose network, tuned on one image a class, classifies the other support images best."""
        images, labels = task.support.images, task.support.labels
        first = first_of_each(labels, task.way)
        few = Task(Labelled(images[first], labels[first]), task.way)
        held = Labelled(images[~first], labels[~first])
        if not len(held.labels):
            return 0.0
        scores = [self._score(self.backbone.init(), few, held)]
        scores += [self._score(self._tuned(few, rate)[0], few, held) for rate in self.rates]
        best = int(torch.stack(scores).argmax())
        return (0.0, *self.rates)[best]

    def _tuned(self, task: Task, rate: float) -> tuple[TaskParams, Tensor]:
        start = self.backbone.init()
        objective = pseudo_query_objective(self.backbone, task, torch.Generator().manual_seed(self.seed))
        found = descend(objective, start, Adam(dict.fromkeys(start, rate)), self.steps)
        return found.params, found.losses

    def _score(self, params: TaskParams, few: Task, held: Labelled) -> Tensor:  # -> ()
        return accuracy(centroid_classifier(self._embedding(params), few)(held.images), held.labels)

    def _embedding(self, params: TaskParams) -> Callable[[Tensor], Tensor]:
        return lambda images: PlainEngine(self.backbone).embed(params, images)


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


def first_of_each(labels: Tensor, way: int) -> Tensor:  # (n,) -> (n,) bool
    """Is this the first sample of its class? The order of samples stays, whatever the classes are called."""
    mine = labels[:, None] == torch.arange(way, device=labels.device)
    return ((mine.cumsum(dim=0) == 1) & mine).any(dim=1)


def build(kit: Kit, engine: Engine | None = None, oracle: bool = True) -> PseudoQueryTuning:
    """P>M>F's last stage on a kit's backbone; the engines for adapters do not know these parameters."""
    return PseudoQueryTuning(moving(kit.backbone, every_weight(kit.backbone.net)))
