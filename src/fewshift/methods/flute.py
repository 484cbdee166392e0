"""FLUTE: a shared template with FiLM of its own for every training domain; a task's FiLM starts from a blend.

Triantafillou et al., ICML 2021. Confirmed from code: FiLM is the affine part of every batch norm, norms use
the support set's moments, the blender (a dataset classifier of 64 filters) weights the domains' FiLM by its
softmax, six steps of Adam at 0.005 on the summed cross-entropy of cosines without a scale. Inferred: with
one domain the blend is trivial, and the published "ImageNet's FiLM" start (two steps at 0.001) is used.
Ours: the backbone is the project's ResNet-18 at 84 pixels where the published one has a 7x7 stem, max-pooling
and 97 pixels, features are brought to length one whatever their length, where the published code leaves those
shorter than 0.03 shorter, and the blender's maps are halved rounding down (84 to 2 pixels, as CNAPs' and
TSP's), where the published ones round up (84 to 3). In the table of the TSP paper the columns of FLUTE and
tri-M are swapped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from fewshift.core.adam import Adam
from fewshift.core.centroids import cosine_logits, prototypes
from fewshift.core.descent import descend
from fewshift.core.precond import blend_sites
from fewshift.methods.about import About
from fewshift.methods.coefficients import named
from fewshift.methods.descent import rounded
from fewshift.methods.task import checked
from fewshift.nets.backbone import CHUNK, Backbone
from fewshift.nets.engine import Engine
from fewshift.nets.film import FilmSites, every_norm
from fewshift.nets.kit import Kit
from fewshift.nets.learned import loaded
from fewshift.nets.moments import by_own_moments, with_moments_of
from fewshift.nets.set_encoder import DatasetClassifier
from fewshift.nets.tensor_file import part
from fewshift.types import Adapted, Task, TaskParams

PART = "flute"
ABOUT = About(
    title="FLUTE, a universal template",
    source="Triantafillou et al., ICML 2021",
    fidelity="inferred",
    moves="scale and shift of every batch norm",
    needs="a template with FiLM a domain, and a blender",
    trained_by="fewshift train flute",
    cost="6 forward and backward passes",
)


@dataclass(frozen=True)
class Flute:
    """FiLM from a blend of the domains', then a few steps on the support set."""

    template: Backbone  # its task parameters are FiLM behind every norm
    own: Backbone  # the same by each call's own moments
    films: Mapping[str, Tensor]  # site -> (K, 2, c)
    blender: DatasetClassifier
    domains: tuple[str, ...]
    rate: float = 0.005
    steps: int = 6
    name: str = PART

    def adapt(self, task: Task) -> Adapted:
        """Nearest centroid under the adapted FiLM and the support set's moments."""
        task = checked(task)
        images, labels = task.support.images, task.support.labels
        with torch.no_grad():
            coefficients = self.blender(images).softmax(dim=-1)
            start = blend_sites(coefficients, self.films)

        def objective(film: TaskParams) -> Tensor:
            features = self.own(film, images)
            logits = cosine_logits(features, prototypes(features, labels, task.way), scale=1.0)
            return F.cross_entropy(logits, labels, reduction="sum")

        trajectory = descend(objective, start, Adam(dict.fromkeys(start, self.rate)), self.steps)
        film = trajectory.params
        settled, features = with_moments_of(self.template, self.own, film, images)
        centres = prototypes(features, labels, task.way)

        @torch.no_grad()
        def logits(queries: Tensor) -> Tensor:  # (n, 3, h, w) -> (n, way)
            features = torch.cat([settled(film, some) for some in torch.split(queries, CHUNK)])
            return cosine_logits(features, centres, scale=1.0)

        losses = rounded(trajectory.losses)
        shares = named(coefficients, self.domains)
        return Adapted(logits, {"oracle": False, "coefficients": shares, "losses": losses})


def build(kit: Kit, engine: Engine | None = None, oracle: bool = True) -> Flute:
    """FLUTE from what a kit holds for it; it has a network of its own, and no use for engine and oracle."""
    home = kit.backbone
    held = kit.part(PART, "fewshift train flute").to(home.device, home.dtype)
    tensors, domains, code = held.tensors, tuple(held.settings["domains"]), held.settings["code"]
    template = replace(home, frozen=part(tensors, "template"), adapters=FilmSites(every_norm(home.net)))
    blender = loaded(lambda: DatasetClassifier(len(domains), code), part(tensors, "blender"), home, PART)
    made = Flute(template, by_own_moments(template), part(tensors, "films"), blender, domains)
    return made if len(domains) > 1 else replace(made, rate=0.001, steps=2)
