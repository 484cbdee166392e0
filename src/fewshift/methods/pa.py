"""PA, pre-classifier alignment: URL's linear map before the nearest-centroid classifier.

Li et al., ICCV 2021. Confirmed from code (VICO-UoE/URL): the map starts at the identity, 40 full-batch steps
of Adadelta, rate 0.1 on domains trained on and 1 on others. Nothing below the map moves, so features are
computed once.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from fewshift.core.descent import descend
from fewshift.core.losses import inner_objective
from fewshift.core.updates import Adadelta
from fewshift.methods.about import About
from fewshift.methods.build import coefficients_for_rates, rate_rule
from fewshift.methods.coefficients import Coefficients, no_coefficients
from fewshift.methods.descent import notes
from fewshift.methods.rates import PA_RATES, RateRule
from fewshift.methods.task import centroid_classifier, checked
from fewshift.nets.backbone import Backbone
from fewshift.nets.engine import Engine
from fewshift.nets.kit import Kit
from fewshift.types import Adapted, Labelled, Task

ABOUT = About(
    title="PA, pre-classifier alignment (URL)",
    source="Li et al., ICCV 2021",
    fidelity="confirmed from code",
    moves="one square map of the features",
    oracle=True,
    cost="one forward pass, 40 steps on features",
    features_only=True,
)


@dataclass(frozen=True)
class PreClassifierAlignment:
    """One square map, learned on the support features."""

    backbone: Backbone
    rates: RateRule = PA_RATES
    coefficients: Coefficients = no_coefficients
    steps: int = 40
    name: str = "pa"

    def adapt(self, task: Task) -> Adapted:
        """The map after `steps` steps, then nearest centroid on mapped features."""
        task = checked(task)
        chosen = self.rates(task, self.coefficients(task.support.images))
        site = self.backbone.sites[-1]
        features = self.backbone.embed(task.support.images)
        on_features = Task(Labelled(features, task.support.labels), task.way)
        trajectory = descend(
            inner_objective(lambda params, x: F.linear(x, params[site]), on_features),
            {site: torch.eye(features.shape[1], dtype=features.dtype, device=features.device)},
            Adadelta({site: chosen.rates.last}),
            self.steps,
        )

        def embed(images: Tensor) -> Tensor:
            return F.linear(self.backbone.embed(images), trajectory.params[site])

        return Adapted(centroid_classifier(embed, task), notes(chosen, trajectory))


def build(kit: Kit, engine: Engine | None = None, oracle: bool = True) -> PreClassifierAlignment:
    """PA on a kit's backbone; it moves nothing below the features, so the engine makes no difference."""
    return PreClassifierAlignment(
        kit.backbone, rate_rule(kit, PA_RATES, oracle), coefficients_for_rates(kit, oracle)
    )
