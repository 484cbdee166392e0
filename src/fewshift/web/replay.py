"""What each step of an adaptation changed: the same descent once more, watched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from fewshift.core.updates import Update
from fewshift.estimator.adapting import Support, Tools
from fewshift.estimator.fitted import Fitted
from fewshift.estimator.trials import leave_one_out
from fewshift.methods.rates import Pair
from fewshift.nets.choice import choose_engine
from fewshift.nets.engine import Engine
from fewshift.nets.graph import GraphEngine
from fewshift.types import Task, TaskParams, Weights

STOPS = (0, 1, 2, 3, 5, 7, 10, 15, 20, 30)  # steps after which the support images are classified


@dataclass(frozen=True)
class Replay:
    """A descent as it went."""

    losses: tuple[float, ...]  # before each step
    moved: Mapping[str, tuple[float, ...]]  # site -> length of each step, in lengths of the frozen weights
    right: tuple[tuple[int, float], ...]  # (step, share of support images right when left out themselves)


class Watched:
    """An update that keeps how far each step went and where the descent stood after some of them."""

    def __init__(self, update: Update[Any], frozen: Weights, stops: tuple[int, ...]) -> None:
        self.update, self.frozen, self.stops = update, frozen, stops
        self.moved: dict[str, list[float]] = {}
        self.kept: dict[int, TaskParams] = {}
        self.steps = 0

    def init(self, params: TaskParams) -> Any:
        """The wrapped update's state."""
        self.moved = {site: [] for site in params}
        return self.update.init(params)

    def step(self, params: TaskParams, gradients: TaskParams, state: Any) -> tuple[TaskParams, Any]:
        """The wrapped update's step."""
        if self.steps in self.stops:
            self.kept[self.steps] = {site: param.clone() for site, param in params.items()}
        moved, state = self.update.step(params, gradients, state)
        for site, param in moved.items():
            whole = self.frozen.get(f"{site}.weight", params[site])
            self.moved[site].append(((param - params[site]).norm() / whole.norm().clamp(min=1e-12)).item())
        self.steps += 1
        return moved, state


@torch.no_grad()
def replay(tools: Tools, support: Support, fitted: Fitted) -> Replay:
    """The descent that led to `fitted`; empty where nothing was moved."""
    settings = fitted.settings
    if settings.frozen or not settings.steps or not fitted.params:
        return Replay((), {}, ())
    task = support.task(tools.kit.backbone.device)
    plan = tools.plan(task)
    watched = Watched(plan.update(Pair(*settings.rates)), tools.kit.backbone.frozen, STOPS)
    engine = _observable(tools.engine)
    end = engine.adapt(task, plan.start, watched, settings.steps)
    stops = {**watched.kept, settings.steps: end.params}
    shares = [(step, _right(engine, task, params)) for step, params in sorted(stops.items())]
    return Replay(
        tuple(end.losses.tolist()),
        {site: tuple(lengths) for site, lengths in watched.moved.items()},
        tuple((step, share) for step, share in shares if share is not None),
    )


def _right(engine: Engine, task: Task, params: TaskParams) -> float | None:
    """None when every class has one image: left out, it leaves nothing to compare with."""
    features = engine.embed(params, task.support.images)
    found = leave_one_out(features, task.support.labels, task.way)
    return found.accuracy() if len(found.labels) else None


def _observable(engine: Engine) -> Engine:
    """A captured graph has no callbacks, the folded engine has; their results are equal."""
    return choose_engine(engine.backbone, "folded") if isinstance(engine, GraphEngine) else engine
