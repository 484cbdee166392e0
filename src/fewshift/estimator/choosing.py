"""How far to adapt, without the oracle: from held-out support images where there are any.

The rates are those that validation chose for the kit, between seen and unseen by the coefficients. How many
steps of them pay is read from the support set itself. Where no class has two images nothing can be held out,
and a few cautious steps are taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from fewshift.errors import FewshiftError
from fewshift.estimator.fitted import Settings
from fewshift.estimator.recipes import STEPS, Recipe
from fewshift.estimator.temperature import calibrated_losses
from fewshift.estimator.trials import Fold, HeldOut, halves, held_out_along
from fewshift.nets.engine import Engine
from fewshift.types import Task

Mode: TypeAlias = Literal["auto", "published"]
MODES: tuple[Mode, ...] = ("auto", "published")
STOPS = (0, 5, 10, 20, 40)
ONE_SHOT_STEPS = 10
PATIENCE = 2  # times the best number of steps so far
LEAST_GAIN = 0.0  # of the held-out loss


@dataclass(frozen=True)
class Choice:
    """The settings, and the held-out images under them where something was held out."""

    settings: Settings
    evidence: HeldOut | None


def planned_steps(plan: Recipe, mode: str) -> int:
    """At most so many steps, for a progress bar."""
    if not plan.start:
        return 0
    return STEPS if mode == "published" else 3 * STEPS


def choose(
    plan: Recipe, engine: Engine, task: Task, mode: str, seed: int, tick: Callable[[], None]
) -> Choice:
    """Rates and steps for this task."""
    if mode not in MODES:
        raise FewshiftError(f"settings is {mode!r}: choose one of {', '.join(MODES)}")
    folds = halves(task.support.labels, seed)
    if not plan.start:
        settings = Settings((0.0, 0.0), 0, "ncc adapts nothing")
        return Choice(settings, _frozen(plan, engine, task, folds))
    if mode == "published":
        rates = (plan.published.adapters, plan.published.last)
        settings = Settings(
            rates, STEPS, "the published rates and steps, the oracle replaced by coefficients"
        )
        return Choice(settings, None)
    rates = (plan.tuned.adapters, plan.tuned.last)
    if folds is None:
        why = "one image a class: nothing can be held out, so a few cautious steps"
        return Choice(Settings(rates, ONE_SHOT_STEPS, why), None)
    return _by_held_out(plan, engine, task, folds, tick)


def _by_held_out(
    plan: Recipe, engine: Engine, task: Task, folds: tuple[Fold, Fold], tick: Callable[[], None]
) -> Choice:
    frozen = _frozen(plan, engine, task, folds)
    assert frozen is not None
    best, best_steps = frozen, -1
    lowest = first = float(calibrated_losses(frozen).mean())
    along = held_out_along(engine, task, folds, plan.start, lambda: plan.update(plan.tuned), STOPS, tick)
    for steps, found in along:
        loss = float(calibrated_losses(found).mean())
        if loss < lowest - LEAST_GAIN:
            best, best_steps, lowest = found, steps, loss
        elif steps >= PATIENCE * max(best_steps, STOPS[1]):
            break  # it has been getting worse for as long as it had got better
    rates = (plan.tuned.adapters, plan.tuned.last)
    said = f"{len(frozen.labels)} held-out support images: loss {first:.3f} without adaptation"
    if best_steps < 0:
        return Choice(Settings((0.0, 0.0), 0, f"{said}, no better with it", frozen=True), frozen)
    why = f"{said}, {lowest:.3f} after {best_steps} steps"
    return Choice(Settings(rates, best_steps, why), best)


def _frozen(plan: Recipe, engine: Engine, task: Task, folds: tuple[Fold, Fold] | None) -> HeldOut | None:
    """The network as it is, as the first thing to beat."""
    if folds is None:
        return None
    return next(held_out_along(engine, task, folds, {}, lambda: plan.update(plan.tuned), (0,), _nothing))[1]


def _nothing() -> None:
    pass
