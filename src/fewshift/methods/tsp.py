"""TSP, Task-Specific Preconditioned gradient descent: Algorithm 3 of the paper (Kang et al., AAAI-25).

The dataset classifier reads the support set, its coefficients blend the domains' preconditioners once, and
every site takes 40 steps θ ← θ − β·P_T·∇L (Eq. 16). On TSA's parameters this is TSP†. Stated in the paper;
what it leaves open (plain descent, P on the output side) is inferred, see docs/equations.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fewshift.core.precond import blend_sites, part_of
from fewshift.core.starts import Starts, task_start
from fewshift.core.updates import site_rates
from fewshift.errors import FewshiftError
from fewshift.methods.about import About
from fewshift.methods.build import at_tuned_rates, coefficients_of, published_rates, rate_rule
from fewshift.methods.coefficients import Coefficients, named
from fewshift.methods.descent import adapted_by, descent_rule
from fewshift.methods.rates import ALL_OF_IT, NONE_OF_IT, TSP_RATES, RateRule, Share
from fewshift.methods.task import checked
from fewshift.nets.choice import choose_engine
from fewshift.nets.engine import Engine
from fewshift.nets.kit import Kit
from fewshift.types import Adapted, Task

ABOUT = About(
    title="TSP†, task-specific preconditioned descent on TSA's parameters",
    source="Kang et al., AAAI 2025",
    fidelity="inferred",
    moves="TSA's 17 matrices",
    needs="a backbone, preconditioners, a dataset classifier",
    trained_by="fewshift train preconditioners, fewshift train classifier",
    oracle=True,
    cost="one pass of the dataset classifier, 40 forward and backward passes",
)
ABOUT_TUNED = ABOUT.tuned("tsp", title="TSP† at its own best rates")


@dataclass(frozen=True)
class TaskSpecificPreconditioning:
    """Descent with a blend of learned preconditioners, or from a blend of learned starts, or both."""

    engine: Engine
    domains: tuple[str, ...]
    matrices: Mapping[str, Tensor] | None  # P_1 .. P_K: site -> (K, m, m), made once; None: P = I
    coefficients: Coefficients
    starts: Starts | None = None  # None: TSA's starting values for every domain
    rates: RateRule = TSP_RATES
    start_share: Share = ALL_OF_IT
    common_share: Share = ALL_OF_IT
    matrix_share: Share = ALL_OF_IT
    input_share: Share = NONE_OF_IT  # of the whitening of inputs
    steps: int = 40
    name: str = "tsp"

    @torch.no_grad()
    def adapt(self, task: Task) -> Adapted:
        """The adapted network's nearest-centroid classifier."""
        task = checked(task)
        coefficients = self.coefficients(task.support.images)
        if coefficients is None:
            raise FewshiftError(
                f"{self.name} needs a kit with a dataset classifier: run fewshift train classifier"
            )
        chosen = self.rates(task, coefficients)
        shares = (share(task, coefficients) for share in (self.start_share, self.common_share))
        start = task_start(self.engine.backbone.init(), self.starts, coefficients, *shares)
        matrix = None
        if self.matrices is not None:
            blended = blend_sites(coefficients, self.matrices)
            matrix = part_of(blended, self.matrix_share(task, coefficients))
        backbone = self.engine.backbone
        rates = site_rates(start, *chosen.rates, backbone.sites[-1])
        whitened = self.input_share(task, coefficients)
        update = descent_rule(backbone, task, start, matrix, rates, whitened)
        blended_by = named(coefficients, self.domains)
        return adapted_by(self.engine, task, start, update, self.steps, chosen, coefficients=blended_by)


def build(kit: Kit, engine: Engine | None = None, oracle: bool = True) -> TaskSpecificPreconditioning:
    """TSP† at the paper's rates, from TSA's starting values even where the kit has learned ones."""
    if kit.preconditioners is None:
        raise FewshiftError("tsp needs a kit with preconditioners: run fewshift train preconditioners")
    if kit.classifier is None:
        raise FewshiftError("tsp needs a kit with a dataset classifier: run fewshift train classifier")
    return TaskSpecificPreconditioning(
        engine or choose_engine(kit.backbone),
        kit.preconditioners.domains,
        kit.preconditioners.matrices(),
        coefficients_of(kit),
        rates=rate_rule(kit, published_rates(kit), oracle),
    )


build_tuned = at_tuned_rates(build)
