"""What fine-tuning methods share: Adam on weights of the network, at a rate found inside the support set.

Each rate is tried on some support images and scored on the others; then all are tuned on at the best one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from fewshift.core.descent import Trajectory
from fewshift.core.losses import accuracy
from fewshift.core.updates import Adam
from fewshift.methods.descent import rounded
from fewshift.methods.task import centroid_classifier
from fewshift.nets.tuning import Copies, Rule, Tuning
from fewshift.types import Adapted, Labelled, Predictor, Task


def tuned_at_best(
    engine: Tuning,
    steps: int,
    task: Task,
    rates: Sequence[float],
    kept: Tensor,  # (n,) bool, of the support images
    copies_of: Callable[[Task], Copies | None] = lambda task: None,
) -> Adapted:
    """The tuned network's nearest-centroid classifier, at the rate that suits the images not kept best.

    Rate 0 leaves the network as it is and comes first. Equals go to the rate that comes first, and so does a
    support set that can spare no image.
    """
    rates, best = (0.0, *rates), 0.0
    if not bool(kept.all()):
        images, labels = task.support.images, task.support.labels
        few = Task(Labelled(images[kept], labels[kept]), task.way)
        ends = _descents(engine, steps, few, rates, copies_of(few))
        scores = [
            float(accuracy(_classifier(engine, few, end)(images[~kept]), labels[~kept])) for end in ends
        ]
        best = rates[scores.index(max(scores))]
    return tuned_at(engine, steps, task, best, copies_of(task))


def tuned_at(engine: Tuning, steps: int, task: Task, rate: float, copies: Copies | None = None) -> Adapted:
    """The one for this rate, with what a result line says of it."""
    (end,) = _descents(engine, steps, task, [rate], copies)
    notes = {"oracle": False, "rates": [rate], "losses": rounded(end.losses)}
    return Adapted(_classifier(engine, task, end), notes)


def adam_at(rate: float) -> Rule:
    """Adam with one rate for all weights."""
    return lambda names: Adam(dict.fromkeys(names, rate))


def place_in_class(labels: Tensor, way: int) -> Tensor:  # (n,) -> (n,) int64
    """How many samples of its class come before each. The classes' names play no part in it."""
    labels = labels.long()
    return F.one_hot(labels, way).cumsum(dim=0).gather(1, labels[:, None])[:, 0] - 1


def _descents(
    engine: Tuning, steps: int, task: Task, rates: Sequence[float], copies: Copies | None
) -> list[Trajectory]:
    moved = engine.tune(task, [adam_at(rate) for rate in rates if rate], steps, copies)
    ends, still = iter(moved), Trajectory(engine.backbone.init(), torch.empty(0))
    return [next(ends) if rate else still for rate in rates]


def _classifier(engine: Tuning, task: Task, end: Trajectory) -> Predictor:
    return centroid_classifier(lambda images: engine.embed(end.params, images), task)
