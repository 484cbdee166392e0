"""TSA, task-specific adapters: a residual 1x1 adapter beside every 3x3 convolution, and PA's map.

Li et al., CVPR 2022. Confirmed from code (VICO-UoE/URL): adapters start at 1e-4 times the identity, 40
full-batch steps of Adadelta at (0.05, 0.1) on domains trained on and (0.5, 1) on others, batch norm in
evaluation mode.
"""

from __future__ import annotations

from dataclasses import dataclass

from fewshift.core.updates import Adadelta, site_rates
from fewshift.methods.about import About
from fewshift.methods.build import at_tuned_rates, coefficients_for_rates, rate_rule
from fewshift.methods.coefficients import Coefficients, no_coefficients
from fewshift.methods.descent import adapted_by
from fewshift.methods.rates import TSA_RATES, RateRule
from fewshift.methods.task import checked
from fewshift.nets.choice import choose_engine
from fewshift.nets.engine import Engine
from fewshift.nets.kit import Kit
from fewshift.types import Adapted, Task

ABOUT = About(
    title="TSA, task-specific adapters",
    source="Li et al., CVPR 2022",
    fidelity="confirmed from code",
    moves="an adapter beside each 3x3 convolution and the last map (17 matrices)",
    oracle=True,
    cost="40 forward and backward passes",
)
ABOUT_TUNED = ABOUT.tuned("tsa", title="TSA at its own best rates")


@dataclass(frozen=True)
class TaskSpecificAdapters:
    """Adapters and map by Adadelta."""

    engine: Engine
    rates: RateRule = TSA_RATES
    coefficients: Coefficients = no_coefficients  # only for choosing rates without the oracle
    steps: int = 40
    name: str = "tsa"

    def adapt(self, task: Task) -> Adapted:
        """The adapted network's nearest-centroid classifier."""
        task = checked(task)
        chosen = self.rates(task, self.coefficients(task.support.images))
        start = self.engine.backbone.init()
        update = Adadelta(site_rates(start, *chosen.rates, self.engine.backbone.sites[-1]))
        return adapted_by(self.engine, task, start, update, self.steps, chosen)


def build(kit: Kit, engine: Engine | None = None, oracle: bool = True) -> TaskSpecificAdapters:
    """TSA on a kit's backbone."""
    engine = engine or choose_engine(kit.backbone)
    return TaskSpecificAdapters(
        engine, rate_rule(kit, TSA_RATES, oracle), coefficients_for_rates(kit, oracle)
    )


build_tuned = at_tuned_rates(build)
