"""How each method descends on a support set: where it starts, by which rule, at which rates.

The same updates and rates as in `fewshift.methods`, taken apart so that rates and steps can be chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fewshift.core.precond import blend_sites
from fewshift.core.updates import Adadelta, Preconditioned, Update, site_rates
from fewshift.errors import FewshiftError
from fewshift.methods.build import coefficients_of, published_rates, rate_rule, tuned_rates
from fewshift.methods.rates import PA_RATES, TSA_RATES, BySeen, Pair
from fewshift.nets.kit import Kit
from fewshift.types import Task, TaskParams

METHODS = ("tsp", "tsa", "gd", "pa", "ncc")
STEPS = 40  # of every published method


@dataclass(frozen=True)
class Recipe:
    """One method on one task: `start` is empty when nothing moves."""

    method: str
    start: TaskParams
    update: Callable[[Pair], Update[Any]]
    published: Pair  # the paper's, chosen without the oracle
    tuned: Pair  # chosen on validation tasks where the kit has them, else the paper's
    coefficients: Tensor | None  # (k,)


@torch.no_grad()
def recipe(method: str, kit: Kit, task: Task) -> Recipe:
    """The recipe of a method by name."""
    if method not in METHODS:
        raise FewshiftError(
            f"there is no method {method!r} for own images: choose one of {', '.join(METHODS)}"
        )
    coefficients = coefficients_of(kit)(task.support.images)
    start = _start(method, kit, coefficients)
    pairs = _published(method, kit)
    return Recipe(
        method,
        start,
        _updates(method, kit, start, coefficients),
        _pair(kit, pairs, task, coefficients),
        _pair(kit, _tuned(method, kit) or pairs, task, coefficients),
        coefficients,
    )


def _start(method: str, kit: Kit, coefficients: Tensor | None) -> TaskParams:
    if method == "ncc":
        return {}
    if method == "pa":
        last = kit.backbone.sites[-1]
        return {last: kit.backbone.init()[last]}
    if method == "tsp":
        _check_tsp(kit)
        return kit.start(coefficients)
    return kit.backbone.init()


def _updates(
    method: str, kit: Kit, start: TaskParams, coefficients: Tensor | None
) -> Callable[[Pair], Update[Any]]:
    last = kit.backbone.sites[-1]
    if method in ("tsa", "pa"):
        return lambda pair: Adadelta(site_rates(start, *pair, last_site=last))
    matrices = None
    if method == "tsp" and kit.preconditioners is not None and coefficients is not None:
        matrices = blend_sites(coefficients, kit.preconditioners.matrices())
    return lambda pair: Preconditioned(matrices, site_rates(start, *pair, last_site=last))


def _published(method: str, kit: Kit) -> BySeen:
    return {"tsa": TSA_RATES, "pa": PA_RATES}.get(method) or published_rates(kit)


def _tuned(method: str, kit: Kit) -> BySeen | None:
    return tuned_rates(kit, method) if method in kit.info.get("rates", {}) else None


def _pair(kit: Kit, pairs: BySeen, task: Task, coefficients: Tensor | None) -> Pair:
    return rate_rule(kit, pairs, oracle=False)(task, coefficients).rates


def _check_tsp(kit: Kit) -> None:
    if kit.preconditioners is None:
        raise FewshiftError("tsp needs a kit with preconditioners: choose another kit, or method='tsa'")
    if kit.classifier is None:
        raise FewshiftError("tsp needs a kit with a dataset classifier: choose another kit, or method='tsa'")
