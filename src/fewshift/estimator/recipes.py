"""How each method descends on a support set: where it starts, by which rule, at which rates.

The same updates and rates as in `fewshift.methods`, taken apart so that rates and steps can be chosen.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fewshift.core.precond import blend_sites
from fewshift.core.starts import task_start
from fewshift.core.updates import Adadelta, Preconditioned, Update, site_rates
from fewshift.errors import FewshiftError
from fewshift.methods.build import coefficients_of, published_rates, rate_rule, start_share
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
    published: Pair  # the paper's, between its two pairs by the coefficients
    gentle: Pair  # for domains like those trained on
    strong: Pair  # for others
    familiarity: float  # 0 to 1: how much the coefficients speak for the gentle pair
    coefficients: Tensor | None  # (k,)


@torch.no_grad()
def recipe(method: str, kit: Kit, task: Task) -> Recipe:
    """The recipe of a method by name."""
    coefficients = coefficients_of(kit)(task.support.images)
    start = _start(method, kit, task, coefficients)
    published = _published(method, kit)
    pairs = _own_images(method, kit) or published
    return Recipe(
        method,
        start,
        _updates(method, kit, start, coefficients),
        rate_rule(kit, published, oracle=False)(task, coefficients).rates,
        pairs.seen,
        pairs.unseen,
        _familiarity(kit, task, coefficients),
        coefficients,
    )


def _start(method: str, kit: Kit, task: Task, coefficients: Tensor | None) -> TaskParams:
    if method == "ncc":
        return {}
    if method == "pa":
        last = kit.backbone.sites[-1]
        return {last: kit.backbone.init()[last]}
    if method == "tsp":
        _check_tsp(kit)
        assert coefficients is not None  # the kit has a classifier
        share = start_share(kit, "tsp_start", oracle=False)(task, coefficients)
        return task_start(kit.backbone.init(), kit.starts, coefficients, share)
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


def _own_images(method: str, kit: Kit) -> BySeen | None:
    """Pairs that were chosen on small validation tasks, where the kit has them.

    Those of `fewshift train rates` are for the protocol's large tasks and too hot for a handful of images.
    """
    found = kit.info.get("own_images", {}).get("rates", {}).get(method)
    return found and BySeen(seen=Pair(*found["seen"]), unseen=Pair(*found["unseen"]))


def _familiarity(kit: Kit, task: Task, coefficients: Tensor | None) -> float:
    """Where `ByCertainty` would stand between the two pairs: its own curve, read off at 0 and 1."""
    rule = rate_rule(kit, BySeen(seen=Pair(math.e, 1.0), unseen=Pair(1.0, 1.0)), oracle=False)
    return math.log(rule(task, coefficients).rates.adapters)


def _check_tsp(kit: Kit) -> None:
    if kit.preconditioners is None:
        raise FewshiftError("tsp needs a kit with preconditioners: choose another kit, or method='tsa'")
    if kit.classifier is None:
        raise FewshiftError("tsp needs a kit with a dataset classifier: choose another kit, or method='tsa'")
