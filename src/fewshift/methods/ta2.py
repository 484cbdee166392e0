"""TA²-Net: a policy chooses how many adapters each convolution gets for a task, then they learn as TSA's.

Guo et al., ICCV 2023. Confirmed from code (PRIS-CV/TA2-Net): r of {0, 1, 2, 3} parallel adapters beside each
3x3 convolution, averaged, all starting at 1e-4 times the identity; PA's map; 40 full-batch steps of Adadelta
at (0.05, 0.1) on domains trained on and (2, 1) on others (0.5 in the first commit, 2 from the same day on);
the policy decides greedily (`fewshift.nets.policy`).

Derived, and tested: the r adapters never differ, so they are one matrix that Adadelta moves by 1/r of its
gradient (`fewshift.core.parallel`). Ours: how the policy is trained (`fewshift.training.policy`).
"""

from __future__ import annotations

from dataclasses import dataclass

from fewshift.core.parallel import collapsed_adadelta
from fewshift.core.updates import site_rates
from fewshift.methods.about import About
from fewshift.methods.build import at_tuned_rates, coefficients_for_rates, rate_rule
from fewshift.methods.coefficients import Coefficients, no_coefficients
from fewshift.methods.descent import adapted_by
from fewshift.methods.rates import BySeen, Pair, RateRule
from fewshift.methods.task import checked
from fewshift.nets.choice import choose_engine
from fewshift.nets.engine import Engine
from fewshift.nets.kit import Kit
from fewshift.nets.policy import AdapterPolicy, configured, policy_of
from fewshift.types import Adapted, Task

ABOUT = About(
    title="TA²-Net, a policy over the number of adapters",
    source="Guo et al., ICCV 2023",
    fidelity="inferred",
    moves="an adapter beside those 3x3 convolutions that the policy chooses, and the last map",
    needs="a backbone, a policy",
    trained_by="fewshift train policy",
    oracle=True,
    cost="one pass of the policy, 40 forward and backward passes",
)
ABOUT_TUNED = ABOUT.tuned("ta2", title="TA²-Net at its own best rates", source="Fewshift")
TA2_RATES = BySeen(seen=Pair(0.05, 0.1), unseen=Pair(2.0, 1.0))


@dataclass(frozen=True)
class TaskAwareAdapters:
    """Adapters where the policy wants them, and the map, by Adadelta."""

    engine: Engine
    policy: AdapterPolicy
    rates: RateRule = TA2_RATES
    coefficients: Coefficients = no_coefficients  # only for choosing rates without the oracle
    steps: int = 40
    name: str = "ta2"

    def adapt(self, task: Task) -> Adapted:
        """The adapted network's nearest-centroid classifier."""
        task = checked(task)
        chosen = self.rates(task, self.coefficients(task.support.images))
        counts = self.policy.counts(self.engine.backbone, task)
        start = configured(self.engine, self.engine.backbone.init(), counts)
        update = collapsed_adadelta(start, site_rates(start, *chosen.rates), counts)
        adapters = list(counts.values())
        return adapted_by(self.engine, task, start, update, self.steps, chosen, adapters=adapters)


def build(kit: Kit, engine: Engine | None = None, oracle: bool = True) -> TaskAwareAdapters:
    """TA²-Net with a kit's policy."""
    policy, engine = policy_of(kit), engine or choose_engine(kit.backbone)
    return TaskAwareAdapters(
        engine, policy, rate_rule(kit, TA2_RATES, oracle), coefficients_for_rates(kit, oracle)
    )


build_tuned = at_tuned_rates(build)
