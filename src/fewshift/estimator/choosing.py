"""How far to adapt, without the oracle: as validation says, unless held-out support images clearly object.

A kit knows from validation tasks which rates suit domains that it was trained on and others, and the
coefficients say between which of them a task lies. A handful of held-out images could choose among rates,
too, but on validation tasks their choices were worse than none: they say so little that only a verdict of two
standard errors is heard. Then adaptation stops earlier, or nothing is adapted at all. The same images say how
sure predictions may be.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from typing import Literal, TypeAlias

from torch import Tensor

from fewshift.errors import FewshiftError
from fewshift.estimator.fitted import Settings
from fewshift.estimator.recipes import METHODS, STEPS, Recipe
from fewshift.estimator.temperature import calibrated_losses
from fewshift.estimator.trials import Fold, HeldOut, halves, held_out_along
from fewshift.nets.engine import Engine
from fewshift.types import Task

Mode: TypeAlias = Literal["auto", "published"]
MODES: tuple[Mode, ...] = ("auto", "published")
FEW = 50  # images; on validation tasks of at most so many, half of the published steps did as well as all
STOPS = (5, 10, STEPS // 2)  # of a trial, whose end stands for the end of the adaptation
CLEAR = 2.0  # standard errors by which a verdict of the held-out images must stand out


@dataclass(frozen=True)
class Choice:
    """The settings, and the held-out images under them where something was held out."""

    settings: Settings
    evidence: HeldOut | None


def check_parameters(method: str, mode: str, seed: int) -> None:
    """Refuse what no fit can use, before any image is read."""
    if method not in METHODS:
        raise FewshiftError(
            f"there is no method {method!r} for own images: choose one of {', '.join(METHODS)}"
        )
    if mode not in MODES:
        raise FewshiftError(f"settings is {mode!r}: choose one of {', '.join(MODES)}")
    if isinstance(seed, bool) or not isinstance(seed, Integral):
        raise FewshiftError(f"seed is {seed!r}: give a whole number")
    if not -(2**63) <= seed < 2**64:  # what torch's generator takes
        raise FewshiftError(f"seed is {seed}: give a whole number of at most 64 bits")


def planned_steps(plan: Recipe, mode: str) -> int:
    """At most so many steps of the whole support set, for a progress bar."""
    if not plan.start:
        return 0
    return STEPS if mode == "published" else STEPS + 2 * STOPS[-1]


def choose(
    plan: Recipe, engine: Engine, task: Task, mode: str, seed: int, tick: Callable[[], None]
) -> Choice:
    """Rates and steps for this task."""
    folds = halves(task.support.labels, int(seed))
    if not plan.start:
        frozen = None if folds is None else _frozen(plan, engine, task, folds)
        return Choice(Settings((0.0, 0.0), 0, "ncc adapts nothing"), frozen)
    if mode == "published":
        why = "as published, the oracle replaced by coefficients"
        return Choice(Settings((*plan.published,), STEPS, why), None)
    steps = STEPS // 2 if len(task.support.labels) <= FEW else STEPS
    if folds is None:
        why = f"one image a class: nothing can be held out; {plan.source}"
        return Choice(Settings((*plan.validated,), steps, why), None)
    return _unless_clearly_worse(plan, engine, task, folds, steps, tick)


def _unless_clearly_worse(
    plan: Recipe, engine: Engine, task: Task, folds: tuple[Fold, Fold], steps: int, tick: Callable[[], None]
) -> Choice:
    frozen = _frozen(plan, engine, task, folds)
    rule = partial(plan.update, plan.validated)
    *earlier, (_, last) = held_out_along(engine, task, folds, plan.start, rule, STOPS, tick)
    best, evidence = steps, last
    for stop, found in reversed(earlier):
        if _clearly_beats(found, evidence):
            best, evidence = stop, found
    before, after = (float(calibrated_losses(e).mean()) for e in (frozen, evidence))
    said = (
        f"{len(frozen.labels)} held-out support images: "
        f"loss {before:.3f} without adaptation, {after:.3f} with"
    )
    if _clearly_beats(frozen, evidence):
        return Choice(Settings((0.0, 0.0), 0, f"{said}, so none", frozen=True), frozen)
    why = f"{said}; {plan.source}, {'all' if best == steps else 'fewer'} steps"
    return Choice(Settings((*plan.validated,), best, why), evidence)


def _clearly_beats(first: HeldOut, second: HeldOut) -> bool:
    return clearly_better(calibrated_losses(first), calibrated_losses(second))


def clearly_better(
    first: Tensor, second: Tensor, clear: float = CLEAR
) -> bool:  # (h,), (h,) losses of the same images
    """Whether the first losses are lower by more than so many standard errors of the difference."""
    gain = (second - first).double()
    if len(gain) < 2:
        return False
    return float(gain.mean()) > clear * float(gain.std()) / math.sqrt(len(gain))


def _frozen(plan: Recipe, engine: Engine, task: Task, folds: tuple[Fold, Fold]) -> HeldOut:
    """The network as it is: the first thing to beat."""
    along = held_out_along(engine, task, folds, {}, lambda: plan.update(plan.published), (0,), lambda: None)
    return next(along)[1]
