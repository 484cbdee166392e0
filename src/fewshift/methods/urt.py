"""URT, the universal representation transformer: learned attention over single-domain extractors.

Liu et al., ICLR 2021. Confirmed from code: two heads whose questions come from all extractors' centroids of
a class, scores divided by √d (the feature's, not the key's width), the mean over classes, cosine centroids
at a learned temperature. Nothing is optimised at test time; `fewshift train selector` learns the heads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fewshift.core.selection import extractor_centres
from fewshift.core.urt import attention, selector_logits
from fewshift.errors import FewshiftError
from fewshift.methods.about import About
from fewshift.methods.coefficients import named
from fewshift.methods.task import checked
from fewshift.nets.engine import Engine
from fewshift.nets.extractors import Extractors, extractors_of
from fewshift.nets.kit import Kit
from fewshift.types import Adapted, Task

PART = "urt"
ABOUT = About(
    title="URT, a universal representation transformer",
    source="Liu et al., ICLR 2021",
    fidelity="confirmed from code",
    moves="the heads' attention over extractors, by a trained network",
    needs="single-domain extractors and a selector of them",
    trained_by="fewshift train extractors, fewshift train selector",
    cost="one forward pass an extractor",
)


@dataclass(frozen=True)
class UniversalTransformer:
    """Attention over extractors, the same for all images of a task."""

    extractors: Extractors
    selector: Mapping[str, Tensor]
    name: str = PART

    @torch.no_grad()
    def adapt(self, task: Task) -> Adapted:
        """Nearest centroid on what each head takes of the extractors."""
        task = checked(task)
        features = self.extractors(task.support.images)
        centres = extractor_centres(features, task.support.labels, task.way)
        mix = attention(self.selector, centres)

        @torch.no_grad()
        def logits(images: Tensor) -> Tensor:  # (n, 3, h, w) -> (n, way)
            return selector_logits(self.selector, mix, self.extractors(images), centres)

        shares = named(mix.mean(dim=1), self.extractors.domains)
        return Adapted(logits, {"oracle": False, "coefficients": shares})


def build(kit: Kit, engine: Engine | None = None, oracle: bool = True) -> UniversalTransformer:
    """URT on a kit's extractors; engine and oracle make no difference to it."""
    part, extractors = kit.part(PART, "fewshift train selector"), extractors_of(kit)
    if tuple(part.settings["domains"]) != extractors.domains:
        raise FewshiftError(
            f"the kit's selector is for extractors of {', '.join(part.settings['domains'])}, the kit has "
            f"{', '.join(extractors.domains)}: run fewshift train selector again"
        )
    home = kit.backbone
    return UniversalTransformer(extractors, part.to(home.device, home.dtype).tensors)
