"""From a kit to a method: what all builders share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import wraps
from typing import Protocol, TypeVar

from torch import Tensor, nn

from fewshift.errors import FewshiftError
from fewshift.methods.coefficients import Coefficients, FromClassifier, no_coefficients
from fewshift.methods.rates import (
    TSP_RATES,
    TSP_RATES_ONE_DOMAIN,
    ByCertainty,
    BySeen,
    Pair,
    RateRule,
    Share,
)
from fewshift.nets.engine import Engine
from fewshift.nets.kit import Kit
from fewshift.types import Method, Task

M = TypeVar("M", bound=Method)
M_co = TypeVar("M_co", bound=Method, covariant=True)

# What validation chooses beside rates: the axis of the search, its name in a kit's info, the methods.
SHARES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "start": ("start_shares", ("start", "tsp_start", "start_white")),
    "common": ("common_shares", ("start", "tsp_start", "start_white")),
    "matrix": ("preconditioner_shares", ("tsp_start",)),
    "input": ("whitening_shares", ("white", "start_white")),
}


class BuilderOf(Protocol[M_co]):
    """From a kit to a method."""

    def __call__(self, kit: Kit, engine: Engine | None = None, oracle: bool = True) -> M_co:
        """`engine` None: the quickest here; `oracle` False: rates do not ask whether a domain was seen."""
        ...


def at_tuned_rates(build: BuilderOf[M]) -> BuilderOf[M]:
    """The builder of the same method at what `fewshift train rates` chose for it on validation tasks."""

    @wraps(build, assigned=("__module__",))
    def build_tuned(kit: Kit, engine: Engine | None = None, oracle: bool = True) -> M:
        """The method at the rates, and with the shares, that validation chose for it."""
        method = build(kit, engine, oracle)
        name = method.name
        own = [axis for axis, (_, having) in SHARES.items() if name in having]
        return replace(  # type: ignore[type-var]
            method,
            rates=rate_rule(kit, tuned_rates(kit, name), oracle),
            name=f"{name}_tuned",
            **{f"{axis}_share": share_of(kit, axis, name, oracle) for axis in own},
        )

    return build_tuned


def some_weights(kit: Kit, method: str, weights: Callable[[nn.Module], tuple[str, ...]]) -> tuple[str, ...]:
    """The names of the weights that a method moves; one at least, or it would be nearest centroid."""
    found = weights(kit.backbone.net)
    if not found:
        raise FewshiftError(
            f"{method} has nothing to move in {type(kit.backbone.net).__name__}: "
            "choose another method, or images instead of features"
        )
    return found


def coefficients_of(kit: Kit) -> Coefficients:
    """The kit's dataset classifier, if it has one."""
    return no_coefficients if kit.classifier is None else FromClassifier(kit.classifier, kit.backbone)


def coefficients_for_rates(kit: Kit, oracle: bool) -> Coefficients:
    """For methods that choose rates alone by them: nobody asks where the oracle does, so no pass is spent."""
    return no_coefficients if oracle else coefficients_of(kit)


def rate_rule(kit: Kit, pairs: BySeen, oracle: bool) -> RateRule:
    """These pairs by the oracle, or by certainty at the threshold that the kit found on validation tasks."""
    return pairs if oracle else ByCertainty(pairs.seen, pairs.unseen, _threshold(kit))


def published_rates(kit: Kit) -> BySeen:
    """The paper's pairs for TSP; they differ a little with one training domain."""
    return TSP_RATES_ONE_DOMAIN if len(kit.trained_on) == 1 else TSP_RATES


def share_of(kit: Kit, axis: str, method: str, oracle: bool) -> Share:
    """How much a task takes of one of `SHARES`: what validation chose for the method, or else all."""
    what, _ = SHARES[axis]
    found = kit.info.get(what, {}).get(method, {"seen": 1.0, "unseen": 1.0})
    return Share(found["seen"], found["unseen"], oracle, _threshold(kit))


def start_shares(kit: Kit, method: str, task: Task, coefficients: Tensor) -> tuple[float, float]:
    """For a task of an untold domain: of the domains' own starting values, and of the common ones."""
    own, common = (share_of(kit, axis, method, oracle=False) for axis in ("start", "common"))
    return own(task, coefficients), common(task, coefficients)


def tuned_rates(kit: Kit, method: str) -> BySeen:
    """The pairs that `fewshift train rates` chose for this method on validation tasks, from the kit."""
    found = kit.info.get("rates", {}).get(method)
    if found is None:
        raise FewshiftError(
            f"the kit has no rates chosen for {method}: run fewshift train rates --methods {method}, "
            f"or use {method} with its published rates"
        )
    return BySeen(seen=Pair(*found["seen"]), unseen=Pair(*found["unseen"]))


def _threshold(kit: Kit) -> float:
    return float(kit.info.get("certainty_threshold", 0.5))
