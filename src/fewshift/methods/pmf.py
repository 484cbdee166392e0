"""P>M>F's fine-tuning: the whole network on varied copies of the support set, at a rate found inside it.

Hu et al., CVPR 2022. Confirmed from code (hushell/pmf_cvpr22, its automatic variant): Adam without decay; the
prototypes come from the clean support set and the loss from varied copies of it. The rate is one of 0,
0.01, 0.001 and 0.0001: each is tried for 50 steps on the first image of every class and scored on the other
support images; ties go to the one tried first, so 0 wins where none is better, as it must at one shot. Then
50 steps on the whole support set. Inferred: the published backbone is a vision transformer meta-trained with
a learned scale; here it is the kit's, with the scale fixed at 10 and batch norm's running statistics.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from fewshift.core.pseudo_query import vary
from fewshift.methods.about import About
from fewshift.methods.build import some_weights
from fewshift.methods.task import checked
from fewshift.methods.tuned import place_in_class, tuned_at_best
from fewshift.nets.engine import Engine
from fewshift.nets.graph_tuning import tuning_like
from fewshift.nets.kit import Kit
from fewshift.nets.tuning import Copies, Tuning
from fewshift.nets.whole import every_weight, moving
from fewshift.types import Adapted, Task

ABOUT = About(
    title="P>M>F fine-tuning, its rate chosen inside the support set",
    source="Hu et al., CVPR 2022",
    fidelity="inferred",
    moves="every weight of the backbone",
    cost="150 steps on one image a class, 50 on all, clean and varied",
)


@dataclass(frozen=True)
class PseudoQueryTuning:
    """Adam on every weight, with pseudo-queries."""

    engine: Tuning
    rates: tuple[float, ...] = (0.01, 0.001, 0.0001)
    steps: int = 50
    seed: int = 0
    name: str = "pmf"

    def adapt(self, task: Task) -> Adapted:
        """The tuned network's nearest-centroid classifier."""
        task = checked(task)
        first = place_in_class(task.support.labels, task.way) == 0
        copies_of = partial(varied_copies, seed=self.seed)
        return tuned_at_best(self.engine, self.steps, task, self.rates, first, copies_of)


def varied_copies(task: Task, seed: int) -> Copies:
    """New copies of the support images for every step; every descent sees the same ones."""

    def copies() -> Iterator[Tensor]:
        generator = torch.Generator().manual_seed(seed)
        while True:
            yield vary(task.support.images, generator)

    return copies


def build(kit: Kit, engine: Engine | None = None, oracle: bool = True) -> PseudoQueryTuning:
    """P>M>F's last stage on a kit's backbone."""
    moved = moving(kit.backbone, some_weights(kit, "pmf", every_weight))
    return PseudoQueryTuning(tuning_like(engine, moved))
