"""How far to adapt, without the oracle: from held-out support images where there are any.

The published methods have two pairs of rates, a gentle one for domains that were trained on and a strong one
for others, and are told which to take. Here the coefficients say which to expect, and held-out support images
may overrule them: both pairs are tried for half of the steps on each half of the support set. They also say
when to stop, and whether to adapt at all. Few images say little, so each verdict has to be clear by its own
standard error; else what is known from validation stands.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Literal, TypeAlias

from torch import Tensor

from fewshift.errors import FewshiftError
from fewshift.estimator.fitted import Settings
from fewshift.estimator.recipes import METHODS, STEPS, Recipe
from fewshift.estimator.temperature import calibrated_losses
from fewshift.estimator.trials import Fold, HeldOut, halves, held_out_along
from fewshift.methods.rates import Pair
from fewshift.nets.engine import Engine
from fewshift.nets.last_map import LastMapEngine
from fewshift.types import Task

Mode: TypeAlias = Literal["auto", "published"]
MODES: tuple[Mode, ...] = ("auto", "published")
TRIED = STEPS // 2  # steps of a trial: who is ahead then is ahead at the end
STOPS = (5, 10, TRIED)
ONE_SHOT_STEPS = STEPS // 2
CLEAR = 1.0  # standard errors by which a verdict of the held-out images must stand out


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


def planned_steps(plan: Recipe, mode: str) -> int:
    """At most so many steps of the whole support set, for a progress bar."""
    if not plan.start:
        return 0
    return STEPS if mode == "published" else 5 * STEPS


def choose(
    plan: Recipe, engine: Engine, task: Task, mode: str, seed: int, tick: Callable[[], None]
) -> Choice:
    """Rates and steps for this task."""
    folds = halves(task.support.labels, int(seed))
    if not plan.start:
        frozen = None if folds is None else _frozen(plan, engine, task, folds)
        return Choice(Settings((0.0, 0.0), 0, "ncc adapts nothing"), frozen)
    if mode == "published":
        return Choice(
            _settings(plan.published, STEPS, "as published, the oracle replaced by coefficients"), None
        )
    if folds is None:
        why = "one image a class: nothing can be held out, so half of the published steps"
        return Choice(_settings(_expected(plan)[1], ONE_SHOT_STEPS, why), None)
    return _by_held_out(plan, engine, task, folds, tick)


def _by_held_out(
    plan: Recipe, engine: Engine, task: Task, folds: tuple[Fold, Fold], tick: Callable[[], None]
) -> Choice:
    frozen = _frozen(plan, engine, task, folds)
    found = _tried(plan, engine, task, folds, _expected(plan), tick)
    if not _settled(found, frozen, plan):
        other = _tried(plan, engine, task, folds, _unexpected(plan), tick)
        found = other if other.clearly_beats(found.evidence) else found
    before, after = (float(calibrated_losses(e).mean()) for e in (frozen, found.evidence))
    said = (
        f"{len(frozen.labels)} held-out support images: "
        f"loss {before:.3f} without adaptation, {after:.3f} with"
    )
    if clearly_better(calibrated_losses(frozen), calibrated_losses(found.evidence)):
        return Choice(Settings((0.0, 0.0), 0, f"{said}, so none", frozen=True), frozen)
    why = f"{said}; {found.name} rates, {'all' if found.steps == STEPS else 'not all'} steps"
    return Choice(_settings(found.pair, found.steps, why), found.evidence)


@dataclass(frozen=True)
class _Tried:
    """A pair of rates, where to stop with it, and the held-out images there."""

    name: str
    pair: Pair
    steps: int
    evidence: HeldOut

    def clearly_beats(self, other: HeldOut) -> bool:
        return clearly_better(calibrated_losses(self.evidence), calibrated_losses(other))


def _settled(found: _Tried, frozen: HeldOut, plan: Recipe) -> bool:
    """Whether a second trial can be saved: nothing is left to gain, or the strong rates are right."""
    nothing_left = frozen.accuracy() == 1.0
    return (
        plan.gentle == plan.strong or nothing_left or (found.name == "strong" and found.clearly_beats(frozen))
    )


def clearly_better(first: Tensor, second: Tensor) -> bool:  # (h,), (h,) losses of the same images
    """Whether the first losses are lower by more than the standard error of the difference."""
    gain = (second - first).double()
    if len(gain) < 2:
        return False
    return float(gain.mean()) > CLEAR * float(gain.std()) / math.sqrt(len(gain))


def _expected(plan: Recipe) -> tuple[str, Pair]:
    """The pair that the coefficients speak for."""
    return ("gentle", plan.gentle) if plan.familiarity > 0.5 else ("strong", plan.strong)


def _unexpected(plan: Recipe) -> tuple[str, Pair]:
    """The other one."""
    return ("strong", plan.strong) if plan.familiarity > 0.5 else ("gentle", plan.gentle)


def _tried(
    plan: Recipe,
    engine: Engine,
    task: Task,
    folds: tuple[Fold, Fold],
    rates: tuple[str, Pair],
    tick: Callable[[], None],
) -> _Tried:
    """One pair, stopped at the end unless an earlier stop is clearly better; the end stands for all steps."""
    name, pair = rates
    stops = (*STOPS, STEPS) if isinstance(engine, LastMapEngine) else STOPS  # on features all steps are cheap
    along = held_out_along(engine, task, folds, plan.start, lambda: plan.update(pair), stops, tick)
    *earlier, (_, last) = along
    best = _Tried(name, pair, STEPS, last)
    for stop, found in reversed(earlier):
        other = _Tried(name, pair, stop, found)
        best = other if other.clearly_beats(best.evidence) else best
    return best


def _frozen(plan: Recipe, engine: Engine, task: Task, folds: tuple[Fold, Fold]) -> HeldOut:
    """The network as it is: the first thing to beat."""
    along = held_out_along(engine, task, folds, {}, lambda: plan.update(plan.published), (0,), lambda: None)
    return next(along)[1]


def _settings(pair: Pair, steps: int, why: str) -> Settings:
    return Settings((pair.adapters, pair.last), steps, why)
