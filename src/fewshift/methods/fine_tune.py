"""Fine-tuning: every weight of the network, or only the scales and shifts of its norms, by Adam.

What a practitioner would do with the same support set. The loss and the head are the ones of TSA and TSP, so
that only what moves differs. Our own recipe: 40 full-batch steps, batch norm by its running statistics.
Tuning norms alone follows Basu et al., AAAI 2024 (LN-Tune), who do it to vision transformers.
"""

from __future__ import annotations

from dataclasses import dataclass

from fewshift.core.adam import Adam
from fewshift.methods.about import About
from fewshift.methods.descent import rounded
from fewshift.methods.task import centroid_classifier, checked
from fewshift.nets.engine import Engine, PlainEngine
from fewshift.nets.kit import Kit
from fewshift.nets.whole import every_weight, in_suited_layout, moving, norm_affine
from fewshift.types import Adapted, Task

ABOUT = About(
    title="fine-tuning of the whole network",
    source="common practice",
    fidelity="our own",
    moves="every weight of the backbone",
    cost="40 steps, each a forward and a full backward pass",
)
ABOUT_NORMS = About(
    title="tuning of the norms' scales and shifts",
    source="after Basu et al., AAAI 2024 (LN-Tune)",
    fidelity="our own",
    moves="a scale and a shift a channel",
    cost="40 steps, each a forward and a backward pass",
)


@dataclass(frozen=True)
class FineTuning:
    """Weights of the network by Adam on the support loss."""

    engine: Engine  # of a backbone whose task parameters are its own weights
    rate: float
    steps: int = 40
    name: str = "fine_tune"

    def adapt(self, task: Task) -> Adapted:
        """The tuned network's nearest-centroid classifier."""
        task = in_suited_layout(checked(task))
        start = self.engine.backbone.init()
        trajectory = self.engine.adapt(task, start, Adam(dict.fromkeys(start, self.rate)), self.steps)
        classify = centroid_classifier(lambda images: self.engine.embed(trajectory.params, images), task)
        return Adapted(classify, {"oracle": False, "losses": rounded(trajectory.losses)})


def build(kit: Kit, engine: Engine | None = None, oracle: bool = True) -> FineTuning:
    """Full fine-tuning; the engines for adapters do not know these parameters, so the plain one runs."""
    return FineTuning(PlainEngine(moving(kit.backbone, every_weight(kit.backbone.net))), rate=3e-4)


def build_norms(kit: Kit, engine: Engine | None = None, oracle: bool = True) -> FineTuning:
    """Scales and shifts only."""
    tuned = PlainEngine(moving(kit.backbone, norm_affine(kit.backbone.net)))
    return FineTuning(tuned, rate=1e-2, name="norm_tune")
