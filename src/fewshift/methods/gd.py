"""Plain gradient descent on TSA's parameters at TSP's rates: TSP with P = I, the baseline that isolates P.

With `scale=1.01` it is TSP with untrained preconditioners, since M starts at 0.1·I and P = MᵀM + I.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fewshift.core.updates import site_rates
from fewshift.methods.about import About
from fewshift.methods.build import at_tuned_rates, coefficients_for_rates, published_rates, rate_rule
from fewshift.methods.coefficients import Coefficients, no_coefficients
from fewshift.methods.descent import adapted_by, descent_rule
from fewshift.methods.rates import NONE_OF_IT, TSP_RATES, RateRule, Share
from fewshift.methods.task import checked
from fewshift.nets.choice import choose_engine
from fewshift.nets.engine import Engine
from fewshift.nets.kit import Kit
from fewshift.types import Adapted, Task

ABOUT = About(
    title="plain descent on TSA's parameters, TSP with P = I",
    source="Kang et al., AAAI 2025 (the baseline without preconditioners)",
    fidelity="inferred",
    moves="TSA's 17 matrices",
    oracle=True,
    cost="40 forward and backward passes",
)
ABOUT_TUNED = ABOUT.tuned("gd", title="plain descent at its own best rates", source="Fewshift")
ABOUT_UNTRAINED_TSP = replace(
    ABOUT,
    title="TSP† before any meta-training, P = 1.01·I",
    source="Kang et al., AAAI 2025 (the initial values of M)",
)


@dataclass(frozen=True)
class GradientDescent:
    """θ ← θ − scale·β·∇L, at every site."""

    engine: Engine
    rates: RateRule = TSP_RATES
    coefficients: Coefficients = no_coefficients  # only for choosing rates without the oracle
    scale: float = 1.0
    input_share: Share = NONE_OF_IT  # of the whitening of inputs
    steps: int = 40
    name: str = "gd"

    def adapt(self, task: Task) -> Adapted:
        """The adapted network's nearest-centroid classifier."""
        task = checked(task)
        coefficients = self.coefficients(task.support.images)
        chosen = self.rates(task, coefficients)
        start = self.engine.backbone.init()
        adapters, last = (self.scale * rate for rate in chosen.rates)
        rates = site_rates(start, adapters, last, self.engine.backbone.sites[-1])
        whitened = self.input_share(task, coefficients)
        update = descent_rule(self.engine.backbone, task, start, None, rates, whitened)
        return adapted_by(self.engine, task, start, update, self.steps, chosen)


def build(kit: Kit, engine: Engine | None = None, oracle: bool = True) -> GradientDescent:
    """Plain descent at TSP's published rates."""
    rule = rate_rule(kit, published_rates(kit), oracle)
    return GradientDescent(engine or choose_engine(kit.backbone), rule, coefficients_for_rates(kit, oracle))


build_tuned = at_tuned_rates(build)  # the baseline that P has to beat


def build_untrained_tsp(kit: Kit, engine: Engine | None = None, oracle: bool = True) -> GradientDescent:
    """TSP before any meta-training: P = 1.01·I."""
    return replace(build(kit, engine, oracle), scale=1.01, name="tsp_untrained")
