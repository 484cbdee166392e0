"""From labelled images to a fitted classifier, and from a fitted one to the next: no state, no files."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fewshift.core.centroids import prototypes
from fewshift.core.descent import Trajectory
from fewshift.estimator.choosing import Choice, choose, planned_steps
from fewshift.estimator.fitted import Fitted, Settings
from fewshift.estimator.hints import Hint, support_hints
from fewshift.estimator.labels import class_array
from fewshift.estimator.recipes import Recipe, recipe
from fewshift.estimator.temperature import calibrated_scale
from fewshift.estimator.trials import SCALE, HeldOut, leave_one_out, watched
from fewshift.estimator.unknown import HALF_WAY, Between, familiar, familiar_from_prototypes
from fewshift.methods.coefficients import named
from fewshift.methods.rates import Pair
from fewshift.nets.adapters import LAST
from fewshift.nets.engine import Engine
from fewshift.nets.kit import Kit
from fewshift.nets.last_map import LastMapEngine, features_below, last_map_of
from fewshift.progress import Track, silent
from fewshift.types import Labelled, Task, TaskParams

LEAST_WARM = 5  # steps of a warm re-adaptation, where there are any


@dataclass(frozen=True)
class Support:
    """The labelled images of a classifier."""

    images: Tensor  # (n, 3, size, size) float32, on the CPU
    labels: Tensor  # (n,) numbers of classes
    names: tuple[str, ...]
    classes: tuple[Hashable, ...]

    def task(self, device: torch.device) -> Task:
        """The same as the methods take it."""
        return Task(Labelled(self.images.to(device), self.labels.to(device)), len(self.classes))


@dataclass(frozen=True)
class Tools:
    """What an adaptation is made with."""

    kit: Kit
    engine: Engine
    method: str
    mode: str
    seed: int
    track: Track = silent

    def plan(self, task: Task) -> Recipe:
        """How this method descends on the task."""
        return recipe(self.method, self.kit, task, as_published=self.mode == "published")


def adapt(tools: Tools, support: Support) -> Fitted:
    """Choose the settings, adapt by them, and keep all that predictions need."""
    task = support.task(tools.kit.backbone.device)
    plan = tools.plan(task)
    engine, light = lighter(tools.engine, task, plan.start)
    with ticking(tools.track, planned_steps(plan, tools.mode)) as tick:
        choice = choose(plan, engine, light, tools.mode, tools.seed, tick)
        start = {} if choice.settings.frozen else plan.start
        end = _descended(engine, light, plan, start, choice.settings, tick)
    features = tools.engine.embed(end.params, task.support.images)
    centres = prototypes(features, task.support.labels, task.way)
    held = choice.evidence or leave_one_out(features, task.support.labels, task.way)
    return Fitted(
        classes=class_array(support.classes),
        params=end.params,
        prototypes=centres,
        counts=_counts(task),
        scale=_scale(tools, choice),
        familiar=familiar(held) if len(held.labels) else familiar_from_prototypes(centres, _between(tools)),
        settings=choice.settings,
        coefficients=_shares(plan, tools.kit),
        losses=tuple(end.losses.tolist()),
        hints=_hints(engine, support, light, choice.evidence),
    )


WARM = "warm, after"


def readapt(tools: Tools, support: Support, before: Fitted) -> Fitted:
    """Go on from the present parameters on a changed support set, for half as many steps as at first.

    Calibration and the unknown score keep what was measured before: parameters that have seen an image
    cannot say how a new one would fare.
    """
    task = support.task(tools.kit.backbone.device)
    plan = tools.plan(task)
    settings = before.settings
    if settings.steps:
        steps = max(LEAST_WARM, settings.steps // 2)
        why = (
            settings.why
            if settings.why.startswith(WARM)
            else f"{WARM} {settings.steps} steps: {settings.why}"
        )
        settings = replace(settings, steps=steps, why=why)
    engine, light = lighter(tools.engine, task, before.params)
    with ticking(tools.track, settings.steps) as tick:
        end = _descended(engine, light, plan, before.params, settings, tick)
    features = tools.engine.embed(end.params, task.support.images)
    return replace(
        before,
        classes=class_array(support.classes),
        params=end.params,
        prototypes=prototypes(features, task.support.labels, task.way),
        counts=_counts(task),
        settings=replace(before.settings, why=settings.why),
        coefficients=_shares(plan, tools.kit),
        losses=tuple(end.losses.tolist()),
        hints=_hints(engine, support, light, None),
    )


def _descended(
    engine: Engine, task: Task, plan: Recipe, start: TaskParams, settings: Settings, tick: Callable[[], None]
) -> Trajectory:
    if not settings.steps or not start:
        return Trajectory(start, torch.empty(0))
    update = watched(engine, plan.update(Pair(*settings.rates)), tick)
    return engine.adapt(task, start, update, settings.steps)


def lighter(engine: Engine, task: Task, start: TaskParams) -> tuple[Engine, Task]:
    """Where nothing below the last map moves: the same on features that are computed once."""
    backbone = engine.backbone
    if not set(start) <= {LAST} or backbone.sites[-1] != LAST or f"{LAST}.bias" in backbone.frozen:
        return engine, task
    features = features_below(backbone)(task.support.images)  # known where coefficients were read off them
    return LastMapEngine(last_map_of(backbone)), Task(Labelled(features, task.support.labels), task.way)


@contextmanager
def ticking(track: Track, total: int) -> Iterator[Callable[[], None]]:
    """A function to call after every step, so that a person sees them; fewer than `total` are fine."""
    bar = iter(track(range(total + 1), label="adapting", total=total)) if total else iter(())
    next(bar, None)  # the bar is drawn with the first item and moves when the next is asked for

    def tick() -> None:
        next(bar, None)

    try:
        yield tick
    finally:
        getattr(bar, "close", tick)()


def _scale(tools: Tools, choice: Choice) -> float:
    default = float(tools.kit.info.get("validation", {}).get("scale", SCALE))
    if tools.mode == "published":
        return SCALE
    return default if choice.evidence is None else calibrated_scale(choice.evidence, default)


def _between(tools: Tools) -> Between:
    """How near the images of classes lie that have one image each, as `bench kits --write` found it.

    It measures the frozen network and one method that adapts, which stands for all of these.
    """
    found = tools.kit.info.get("validation", {}).get("one_image", {})
    adapted = next((place for name, place in found.items() if name != "ncc"), None)
    usual = found.get(tools.method, adapted)
    return HALF_WAY if usual is None else Between(**usual)


def _hints(engine: Engine, support: Support, task: Task, second: HeldOut | None) -> tuple[Hint, ...]:
    features = engine.embed({}, task.support.images)
    found = leave_one_out(features, task.support.labels, task.way)
    return support_hints(found, support.names, support.classes, second)


def _counts(task: Task) -> tuple[int, ...]:
    return tuple(torch.bincount(task.support.labels, minlength=task.way).tolist())


def _shares(plan: Recipe, kit: Kit) -> dict[str, float]:
    return {} if plan.coefficients is None else dict(named(plan.coefficients, kit.domains))
