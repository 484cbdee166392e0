"""How each method descends on a support set: where it starts, by which rule, at which rates.

The same updates and rates as in `fewshift.methods`, taken apart so that rates and steps can be chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fewshift.core.precond import blend_sites, part_of
from fewshift.core.starts import task_start
from fewshift.core.updates import Adadelta, Preconditioned, Update, site_rates
from fewshift.errors import FewshiftError
from fewshift.methods.build import (
    SHARES,
    coefficients_of,
    published_rates,
    rate_rule,
    share_of,
    start_shares,
    tuned_rates,
)
from fewshift.methods.rates import PA_RATES, TSA_RATES, Pair
from fewshift.nets.kit import Kit
from fewshift.types import Preconditioner, Task, TaskParams

METHODS = ("tsp", "tsa", "gd", "pa", "ncc")
STEPS = 40  # of every published method
WITH_STARTS = ("tsp_start", "start")  # names of tsp with learned starting values in a kit's validation


@dataclass(frozen=True)
class Recipe:
    """One method on one task: `start` is empty when nothing moves."""

    start: TaskParams
    update: Callable[[Pair], Update[Any]]
    published: Pair  # the paper's, between its two pairs by the coefficients
    validated: Pair  # what the kit's validation chose, likewise; the paper's where the kit has none
    source: str  # whose rates `validated` are, in words
    coefficients: Tensor | None  # (k,)


@torch.no_grad()
def recipe(method: str, kit: Kit, task: Task, as_published: bool = False) -> Recipe:
    """The recipe of a method by name; as published, tsp leaves out what is not the paper's."""
    coefficients = coefficients_of(kit)(task.support.images)
    start = _start(method, replace(kit, starts=None) if as_published else kit, task, coefficients)
    matrices = None
    if method == "tsp" and kit.preconditioners is not None and coefficients is not None:
        matrices = blend_sites(coefficients, kit.preconditioners.matrices())
        if not as_published:
            matrices = part_of(
                matrices, share_of(kit, "matrix", WITH_STARTS[0], oracle=False)(task, coefficients)
            )
    published = {"tsa": TSA_RATES, "pa": PA_RATES}.get(method) or published_rates(kit)
    name = _validated_name(method, kit)
    validated = published if name is None else tuned_rates(kit, name)
    return Recipe(
        start,
        _updates(method, kit, start, matrices),
        rate_rule(kit, published, oracle=False)(task, coefficients).rates,
        rate_rule(kit, validated, oracle=False)(task, coefficients).rates,
        "the paper's rates" if name is None else "rates of the kit's validation",
        coefficients,
    )


def chosen_for(method: str, kit: Kit) -> dict[str, Any]:
    """What validation chose of all that a recipe of this method is made of."""
    name = _validated_name(method, kit)
    shares = [SHARES[axis][0] for axis in ("start", "common", "matrix")] if method == "tsp" else []
    return {
        "rates": None if name is None else [name, kit.info["rates"][name]],
        "threshold": kit.info.get("certainty_threshold"),
        **{what: [kit.info.get(what, {}).get(name) for name in WITH_STARTS] for what in shares},
    }


def _start(method: str, kit: Kit, task: Task, coefficients: Tensor | None) -> TaskParams:
    if method == "ncc":
        return {}
    if method == "pa":
        last = kit.backbone.sites[-1]
        return {last: kit.backbone.init()[last]}
    if method == "tsp":
        _check_tsp(kit)
        assert coefficients is not None  # the kit has a classifier
        known = kit.info.get("start_shares", {})
        name = next((name for name in WITH_STARTS if name in known), WITH_STARTS[0])
        shares = start_shares(kit, name, task, coefficients)
        return task_start(kit.backbone.init(), kit.starts, coefficients, *shares)
    return kit.backbone.init()


def _updates(
    method: str, kit: Kit, start: TaskParams, matrices: Preconditioner | None
) -> Callable[[Pair], Update[Any]]:
    last = kit.backbone.sites[-1]
    if method in ("tsa", "pa"):
        return lambda pair: Adadelta(site_rates(start, *pair, last_site=last))
    return lambda pair: Preconditioned(matrices, site_rates(start, *pair, last_site=last))


def _validated_name(method: str, kit: Kit) -> str | None:
    """Under which name the kit has rates for this method, or for the one nearest to it."""
    known = kit.info.get("rates", {})
    names: tuple[str, ...] = (method,)
    if method == "tsp":
        names = (*WITH_STARTS, "tsp", "gd") if kit.starts is not None else ("tsp", "gd")
    return next((name for name in names if name in known), None)


def _check_tsp(kit: Kit) -> None:
    if kit.preconditioners is None:
        raise FewshiftError("tsp needs a kit with preconditioners: choose another kit, or method='tsa'")
    if kit.classifier is None:
        raise FewshiftError("tsp needs a kit with a dataset classifier: choose another kit, or method='tsa'")
