"""Nearest centroid on frozen features: what every adaptation has to beat.

Snell et al. 2017, with the cosine of the Meta-Dataset extractors (confirmed from code: VICO-UoE/URL).
"""

from __future__ import annotations

from dataclasses import dataclass

from fewshift.methods.about import About
from fewshift.methods.task import centroid_classifier, checked
from fewshift.nets.backbone import Backbone
from fewshift.nets.engine import Engine
from fewshift.nets.kit import Kit
from fewshift.types import Adapted, Task

ABOUT = About(
    title="nearest centroid on frozen features",
    source="Snell et al., NeurIPS 2017; with the cosine of Li et al., ICCV 2021",
    fidelity="confirmed from code",
    moves="nothing",
    features_only=True,
)


@dataclass(frozen=True)
class NearestCentroid:
    """No adaptation at all."""

    backbone: Backbone
    name: str = "ncc"

    def adapt(self, task: Task) -> Adapted:
        """The centroids of the support features."""
        return Adapted(centroid_classifier(self.backbone.embed, checked(task)), {"oracle": False})


def build(kit: Kit, engine: Engine | None = None, oracle: bool = True) -> NearestCentroid:
    """Nearest centroid on a kit's backbone; engine and oracle make no difference to it."""
    return NearestCentroid(kit.backbone)
