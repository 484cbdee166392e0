"""What fine-tuning methods share: Adam on weights of the network at some rates, then nearest centroid."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from fewshift.core.adam import Adam
from fewshift.core.descent import Trajectory
from fewshift.methods.descent import rounded
from fewshift.methods.task import centroid_classifier
from fewshift.nets.tuning import Copies, Rule, Tuning
from fewshift.types import Adapted, Predictor, Task


def tuned(
    engine: Tuning, steps: int, task: Task, rates: Sequence[float], copies: Copies | None = None
) -> list[Predictor]:
    """A classifier for each rate; rate 0 leaves the network as it is."""
    return [_classifier(engine, task, end) for end in _descents(engine, steps, task, rates, copies)]


def tuned_at(engine: Tuning, steps: int, task: Task, rate: float, copies: Copies | None = None) -> Adapted:
    """The one for this rate, with what a result line says of it."""
    (end,) = _descents(engine, steps, task, [rate], copies)
    notes = {"oracle": False, "rates": [rate], "losses": rounded(end.losses)}
    return Adapted(_classifier(engine, task, end), notes)


def adam_at(rate: float) -> Rule:
    """Adam with one rate for all weights."""
    return lambda names: Adam(dict.fromkeys(names, rate))


def _descents(
    engine: Tuning, steps: int, task: Task, rates: Sequence[float], copies: Copies | None
) -> list[Trajectory]:
    moved = engine.tune(task, [adam_at(rate) for rate in rates if rate], steps, copies)
    ends, still = iter(moved), Trajectory(engine.backbone.init(), torch.empty(0))
    return [next(ends) if rate else still for rate in rates]


def _classifier(engine: Tuning, task: Task, end: Trajectory) -> Predictor:
    return centroid_classifier(lambda images: engine.embed(end.params, images), task)
