"""TSP††: task-specific preconditioned descent on TA²-Net's adapters (Kang et al., AAAI-25).

Stated in the paper (appendix "Application Details"): every one of the r adapters of a site takes the same
preconditioned steps. Derived, and tested: they never differ, so they are one matrix that takes 1/r of the
step (`fewshift.core.parallel`). Rates, steps, blend and classifier are those of TSP†; the paper gives one
table for both. Inferred: the policy is TA²-Net's own, trained first and then frozen; the preconditioners are
meta-trained under its configuration of each task (`fewshift train preconditioners --policy`). A kit without
such ones lends those of TSP†, and the notes of a result say which were used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fewshift.core.parallel import collapsed_descent
from fewshift.core.precond import DomainPreconditioners, blend_sites
from fewshift.core.updates import site_rates
from fewshift.errors import FewshiftError
from fewshift.methods.about import About
from fewshift.methods.build import at_tuned_rates, coefficients_of, published_rates, rate_rule
from fewshift.methods.coefficients import Coefficients, named
from fewshift.methods.descent import adapted_by
from fewshift.methods.rates import TSP_RATES, RateRule
from fewshift.methods.task import checked
from fewshift.nets.choice import choose_engine
from fewshift.nets.engine import Engine
from fewshift.nets.kit import Kit
from fewshift.nets.policy import UNDER_POLICY, AdapterPolicy, configured, policy_of, preconditioners_of
from fewshift.types import Adapted, Task

ABOUT = About(
    title="TSP††, task-specific preconditioned descent on TA²-Net's adapters",
    source="Kang et al., AAAI 2025",
    fidelity="inferred",
    moves="an adapter beside those 3x3 convolutions that the policy chooses, and the last map",
    needs="a backbone, preconditioners (better its own), a dataset classifier, a policy",
    trained_by="fewshift train preconditioners, fewshift train classifier, fewshift train policy, "
    "fewshift train preconditioners --policy",
    oracle=True,
    cost="one pass of the policy, one of the dataset classifier, 40 forward and backward passes",
)
ABOUT_TUNED = ABOUT.tuned("tsp_ta2", title="TSP†† at its own best rates")


@dataclass(frozen=True)
class TaskAwarePreconditioning:
    """The policy's adapters, moved by a blend of learned preconditioners."""

    engine: Engine
    policy: AdapterPolicy
    domains: tuple[str, ...]
    matrices: Mapping[str, Tensor]  # P_1 .. P_K: site -> (K, m, m), made once for all tasks
    coefficients: Coefficients
    learned_under: Literal["policy", "tsp"]
    rates: RateRule = TSP_RATES
    steps: int = 40
    name: str = "tsp_ta2"

    @torch.no_grad()
    def adapt(self, task: Task) -> Adapted:
        """The adapted network's nearest-centroid classifier."""
        task = checked(task)
        coefficients = self.coefficients(task.support.images)
        assert coefficients is not None  # `build` asks for a dataset classifier
        chosen = self.rates(task, coefficients)
        counts = self.policy.counts(self.engine.backbone, task)
        start = configured(self.engine, self.engine.backbone.init(), counts)
        matrix = blend_sites(coefficients, {site: self.matrices[site] for site in start})
        update = collapsed_descent(matrix, site_rates(start, *chosen.rates), counts)
        return adapted_by(
            self.engine,
            task,
            start,
            update,
            self.steps,
            chosen,
            coefficients=named(coefficients, self.domains),
            adapters=list(counts.values()),
            preconditioners=self.learned_under,
        )


def build(kit: Kit, engine: Engine | None = None, oracle: bool = True) -> TaskAwarePreconditioning:
    """TSP†† at the paper's rates, with its own preconditioners or else TSP†'s."""
    policy = policy_of(kit)
    own = UNDER_POLICY in kit.parts
    learned = preconditioners_of(kit, UNDER_POLICY) if own else _of_tsp(kit)
    if kit.classifier is None:
        raise FewshiftError("tsp_ta2 needs a kit with a dataset classifier: run fewshift train classifier")
    return TaskAwarePreconditioning(
        engine or choose_engine(kit.backbone),
        policy,
        learned.domains,
        learned.matrices(),
        coefficients_of(kit),
        "policy" if own else "tsp",
        rate_rule(kit, published_rates(kit), oracle),
    )


build_tuned = at_tuned_rates(build)


def _of_tsp(kit: Kit) -> DomainPreconditioners:
    if kit.preconditioners is None:
        raise FewshiftError(
            "tsp_ta2 needs a kit with preconditioners: run fewshift train preconditioners --policy"
        )
    return kit.preconditioners
