"""Fine-tuning: every weight of the network, or only the scales and shifts of its norms, by Adam.

What a practitioner would do with the same support set. The loss and the head are the ones of TSA and TSP, so
that only what moves differs. Our own recipe: 40 full-batch steps, batch norm by its running statistics, at a
rate found inside the support set. Each rate is tried on every other image of each class and scored on those
between; 0 is tried first and wins unless another is better, as it does where every class has one image.
Tuning norms alone follows Basu et al., AAAI 2024 (LN-Tune), who do it to vision transformers.
"""

from __future__ import annotations

from dataclasses import dataclass

from fewshift.methods.about import About
from fewshift.methods.build import some_weights
from fewshift.methods.task import checked
from fewshift.methods.tuned import place_in_class, tuned_at_best
from fewshift.nets.engine import Engine
from fewshift.nets.graph_tuning import tuning_like
from fewshift.nets.kit import Kit
from fewshift.nets.tuning import Tuning
from fewshift.nets.whole import every_weight, moving, norm_affine
from fewshift.types import Adapted, Task

ABOUT = About(
    title="fine-tuning of the whole network, its rate chosen inside the support set",
    source="common practice",
    fidelity="our own",
    moves="every weight of the backbone",
    cost="120 steps on half the images, 40 on all, each a forward and a full backward pass",
)
ABOUT_NORMS = About(
    title="tuning of the norms' scales and shifts, its rate chosen inside the support set",
    source="after Basu et al., AAAI 2024 (LN-Tune)",
    fidelity="our own",
    moves="a scale and a shift a channel",
    cost="120 steps on half the images, 40 on all, each a forward and a backward pass",
)


@dataclass(frozen=True)
class FineTuning:
    """Weights of the network by Adam on the support loss."""

    engine: Tuning
    rates: tuple[float, ...]  # to choose among, beside 0
    steps: int = 40
    name: str = "fine_tune"

    def adapt(self, task: Task) -> Adapted:
        """The tuned network's nearest-centroid classifier."""
        task = checked(task)
        kept = place_in_class(task.support.labels, task.way) % 2 == 0
        return tuned_at_best(self.engine, self.steps, task, self.rates, kept)


def build(kit: Kit, engine: Engine | None = None, oracle: bool = True) -> FineTuning:
    """Full fine-tuning of a kit's backbone."""
    sites = some_weights(kit, "fine_tune", every_weight)
    return FineTuning(tuning_like(engine, moving(kit.backbone, sites)), rates=(1e-4, 3e-4, 1e-3))


def build_norms(kit: Kit, engine: Engine | None = None, oracle: bool = True) -> FineTuning:
    """Scales and shifts only."""
    sites = some_weights(kit, "norm_tune", norm_affine)
    moved = tuning_like(engine, moving(kit.backbone, sites))
    return FineTuning(moved, rates=(1e-3, 3e-3, 1e-2), name="norm_tune")
