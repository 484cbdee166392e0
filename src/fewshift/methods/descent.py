"""What TSA, plain descent and TSP share: every site moves for some steps, then nearest centroid.

They differ in the update rule and in where the parameters start; each method file says only that.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from fewshift.core.descent import Trajectory
from fewshift.core.precond import part_of
from fewshift.core.updates import Preconditioned, TwoSided, Update
from fewshift.core.whitening import whitener
from fewshift.methods.rates import Chosen
from fewshift.methods.task import centroid_classifier
from fewshift.nets.backbone import Backbone
from fewshift.nets.engine import Engine
from fewshift.nets.input_moments import input_moments
from fewshift.types import Adapted, Preconditioner, Rates, Task, TaskParams


def adapted_by(
    engine: Engine,
    task: Task,
    start: TaskParams,
    update: Update[Any],
    steps: int,
    chosen: Chosen,
    **more: Any,
) -> Adapted:
    """Descend on the support loss by this rule, then classify by the centroids of what results."""
    trajectory = engine.adapt(task, start, update, steps)
    classify = centroid_classifier(lambda images: engine.embed(trajectory.params, images), task)
    return Adapted(classify, notes(chosen, trajectory) | more)


def descent_rule(
    backbone: Backbone,
    task: Task,
    start: TaskParams,
    matrices: Preconditioner | None,
    rates: Rates,
    whitened: float,
) -> Update[Any]:
    """Plain or preconditioned descent; also whitened, by this share, by what the sites read."""
    if not whitened:
        return Preconditioned(matrices, rates)
    moments = input_moments(backbone, start, task.support.images)
    inputs = part_of({site: whitener(moment) for site, moment in moments.items()}, whitened)
    return TwoSided(matrices, inputs, rates)


def notes(chosen: Chosen, trajectory: Trajectory) -> dict[str, Any]:
    """What goes into the result line: the rates, whether the oracle chose them, the loss before each step."""
    rates = [round(rate, 6) for rate in chosen.rates]
    return {"oracle": chosen.oracle, "rates": rates, "losses": rounded(trajectory.losses)}


def rounded(losses: Tensor) -> list[float]:  # (steps,)
    """Losses as a result line holds them."""
    return [round(loss, 5) for loss in losses.tolist()]
