"""SUR: which of several single-domain extractors to listen to, chosen on the support set.

Dvornik et al., ECCV 2020. Confirmed from code: unit features of all extractors laid end to end, each times
sigmoid(λ_k); λ starts at 0 and takes 40 steps of Adadelta at rate 3000 / way on the support set's own
nearest-centroid loss; then nearest centroid. Only K numbers move, so the features enter through their inner
products alone (`fewshift.core.selection`), and a step costs microseconds. The published extractors were
trained with a cosine head; those of `fewshift train extractors` have a linear one, as URL's.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from fewshift.core.descent import descend
from fewshift.core.selection import extractor_centres, inner_products, weighted_cosine_logits
from fewshift.core.updates import Adadelta
from fewshift.methods.about import About
from fewshift.methods.coefficients import named
from fewshift.methods.descent import rounded
from fewshift.methods.task import checked
from fewshift.nets.engine import Engine
from fewshift.nets.extractors import REMEDY, Extractors, extractors_of
from fewshift.nets.kit import Kit
from fewshift.types import Adapted, Task, TaskParams

SITE = "selection"
ABOUT = About(
    title="SUR, selecting from universal representations",
    source="Dvornik et al., ECCV 2020",
    fidelity="confirmed from code",
    moves="one number an extractor",
    needs="single-domain extractors",
    trained_by=REMEDY,
    cost="one forward pass an extractor",
)


@dataclass(frozen=True)
class SelectingFromUniversal:
    """A weight an extractor, learned on the support set."""

    extractors: Extractors
    rate: float = 3000.0  # divided by the way
    steps: int = 40
    name: str = "sur"

    def adapt(self, task: Task) -> Adapted:
        """The weights after `steps` steps, then nearest centroid on the weighted features."""
        task = checked(task)
        features, labels = self.extractors(task.support.images), task.support.labels
        centres = extractor_centres(features, labels, task.way)
        products = inner_products(features, centres)

        def objective(params: TaskParams) -> Tensor:
            logits = weighted_cosine_logits(params[SITE].sigmoid(), products)
            return F.cross_entropy(logits, labels)

        start = {SITE: features.new_zeros(features.shape[1])}
        trajectory = descend(objective, start, Adadelta({SITE: self.rate / task.way}), self.steps)
        weights = trajectory.params[SITE].sigmoid()

        @torch.no_grad()
        def logits(images: Tensor) -> Tensor:  # (n, 3, h, w) -> (n, way)
            return weighted_cosine_logits(weights, inner_products(self.extractors(images), centres))

        losses = rounded(trajectory.losses)
        shares = named(weights, self.extractors.domains)
        return Adapted(logits, {"oracle": False, "coefficients": shares, "losses": losses})


def build(kit: Kit, engine: Engine | None = None, oracle: bool = True) -> SelectingFromUniversal:
    """SUR on a kit's extractors; engine and oracle make no difference to it."""
    return SelectingFromUniversal(extractors_of(kit))
