"""What Simple CNAPS and tri-M share: FiLM by a hyper-network in a frozen backbone, one Gaussian per class.

They differ in the hyper-network; each method file says only that. Nothing is optimised at test time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fewshift.core.mahalanobis import class_gaussians, mahalanobis_logits
from fewshift.methods.coefficients import named
from fewshift.methods.task import checked
from fewshift.nets.backbone import CHUNK, Backbone
from fewshift.nets.film import block_norms, channels, film_backbone
from fewshift.nets.kit import Kit
from fewshift.nets.learned import loaded
from fewshift.nets.modulators import Modulation
from fewshift.types import Adapted, Task, TaskParams


@dataclass(frozen=True)
class Modulated:
    """FiLM from the support set, classes by Mahalanobis distance."""

    backbone: Backbone  # its task parameters are FiLM
    modulator: nn.Module
    domains: tuple[str, ...]
    name: str
    published_one_shot: bool = False

    @torch.no_grad()
    def adapt(self, task: Task) -> Adapted:
        """The modulated network's Mahalanobis classifier; where there is a gate it goes into the notes."""
        task = checked(task)
        found: Modulation = self.modulator(task.support.images)
        support = embed(self.backbone, found.film, task.support.images)
        classes = class_gaussians(
            support, task.support.labels, task.way, published_one_shot=self.published_one_shot
        )

        @torch.no_grad()
        def logits(images: Tensor) -> Tensor:  # (n, 3, h, w) -> (n, way)
            return mahalanobis_logits(embed(self.backbone, found.film, images), classes)

        notes: dict[str, Any] = {"oracle": False}
        if found.domain_logits is not None:
            notes["coefficients"] = named(found.domain_logits.softmax(dim=-1), self.domains)
        return Adapted(logits, notes)


def embed(backbone: Backbone, film: TaskParams, images: Tensor) -> Tensor:  # (n, 3, h, w) -> (n, d)
    """Features under this FiLM, some images at a time."""
    return torch.cat([backbone(film, part) for part in torch.split(images, CHUNK)])


def modulated(
    kit: Kit, part: str, command: str, make: Callable[[Mapping[str, int], int, int], nn.Module]
) -> Modulated:
    """The method from its part of a kit; `make` gives its hyper-network by sites, domains and code."""
    held, sites = kit.part(part, command), channels(kit.backbone, block_norms())
    code, domains = held.settings["code"], tuple(held.settings["domains"])
    modulator = loaded(lambda: make(sites, len(domains), code), held.tensors, kit.backbone, part)
    return Modulated(film_backbone(kit.backbone), modulator, domains, part)
