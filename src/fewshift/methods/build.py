"""From a kit to a method: what all builders share."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from fewshift.errors import FewshiftError
from fewshift.methods.coefficients import Coefficients, FromClassifier, FromFeatures, no_coefficients
from fewshift.methods.rates import (
    TSP_RATES,
    TSP_RATES_ONE_DOMAIN,
    ByCertainty,
    BySeen,
    Pair,
    RateRule,
    Share,
)
from fewshift.nets.kit import Kit
from fewshift.nets.set_encoder import FeatureClassifier
from fewshift.types import Task

# in a kit's info
START_SHARES, COMMON_SHARES, MATRIX_SHARES = "start_shares", "common_shares", "preconditioner_shares"
INPUT_SHARES = "whitening_shares"


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
    if isinstance(kit.classifier, FeatureClassifier):
        return FromFeatures(kit.classifier, kit.backbone)
    return no_coefficients if kit.classifier is None else FromClassifier(kit.classifier)


def coefficients_for_rates(kit: Kit, oracle: bool) -> Coefficients:
    """For methods that choose rates alone by them: nobody asks where the oracle does, so no pass is spent."""
    return no_coefficients if oracle else coefficients_of(kit)


def rate_rule(kit: Kit, pairs: BySeen, oracle: bool) -> RateRule:
    """These pairs by the oracle, or by certainty at the threshold that the kit found on validation tasks."""
    return pairs if oracle else ByCertainty(pairs.seen, pairs.unseen, _threshold(kit))


def published_rates(kit: Kit) -> BySeen:
    """The paper's pairs for TSP; they differ a little with one training domain."""
    return TSP_RATES_ONE_DOMAIN if len(kit.trained_on) == 1 else TSP_RATES


def start_share(kit: Kit, method: str, oracle: bool) -> Share:
    """How much of the domains' own starting values a task takes: what validation chose, or else all."""
    return _share(kit, START_SHARES, method, oracle)


def common_share(kit: Kit, method: str, oracle: bool) -> Share:
    """How much of the starting values that all domains share; likewise."""
    return _share(kit, COMMON_SHARES, method, oracle)


def start_shares(kit: Kit, method: str, task: Task, coefficients: Tensor) -> tuple[float, float]:
    """Both for a task of an untold domain: of the domains' own starting values, and of the common ones."""
    own, common = start_share(kit, method, oracle=False), common_share(kit, method, oracle=False)
    return own(task, coefficients), common(task, coefficients)


def matrix_share(kit: Kit, method: str, oracle: bool) -> Share:
    """How much of the blended P a task takes, the rest being the identity; likewise."""
    return _share(kit, MATRIX_SHARES, method, oracle)


def input_share(kit: Kit, method: str, oracle: bool) -> Share:
    """How much of the whitening of inputs a task takes, the rest being the identity; likewise."""
    return _share(kit, INPUT_SHARES, method, oracle)


def _share(kit: Kit, what: str, method: str, oracle: bool) -> Share:
    found = kit.info.get(what, {}).get(method, {"seen": 1.0, "unseen": 1.0})
    return Share(found["seen"], found["unseen"], oracle, _threshold(kit))


def _threshold(kit: Kit) -> float:
    return float(kit.info.get("certainty_threshold", 0.5))


def tuned_rates(kit: Kit, method: str) -> BySeen:
    """The pairs that `fewshift train rates` chose for this method on validation tasks, from the kit."""
    found = kit.info.get("rates", {}).get(method)
    if found is None:
        raise FewshiftError(
            f"the kit has no rates chosen for {method}: run fewshift train rates --methods {method}, "
            f"or use {method} with its published rates"
        )
    return BySeen(seen=Pair(*found["seen"]), unseen=Pair(*found["unseen"]))
