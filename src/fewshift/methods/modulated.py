"""What Simple CNAPS and tri-M share: FiLM by a hyper-network in a frozen backbone, one Gaussian per class.

They differ in the hyper-network; each method file says only that. Nothing is optimised at test time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from fewshift.core.mahalanobis import class_gaussians, mahalanobis_logits
from fewshift.methods.task import checked
from fewshift.nets.backbone import CHUNK, Backbone
from fewshift.nets.modulators import Modulation
from fewshift.types import Adapted, Task, TaskParams


@torch.no_grad()
def adapted_by_modulation(
    backbone: Backbone,
    modulator: nn.Module,
    task: Task,
    published_one_shot: bool,
    notes: Callable[[Modulation], dict[str, Any]],
) -> Adapted:
    """FiLM from the support set, then the Mahalanobis classifier on the modulated features."""
    task = checked(task)
    found: Modulation = modulator(task.support.images)
    support = embed(backbone, found.film, task.support.images)
    classes = class_gaussians(support, task.support.labels, task.way, published_one_shot=published_one_shot)

    @torch.no_grad()
    def logits(images: Tensor) -> Tensor:  # (n, 3, h, w) -> (n, way)
        return mahalanobis_logits(embed(backbone, found.film, images), classes)

    return Adapted(logits, {"oracle": False, **notes(found)})


def embed(backbone: Backbone, film: TaskParams, images: Tensor) -> Tensor:  # (n, 3, h, w) -> (n, d)
    """Features under this FiLM, some images at a time."""
    return torch.cat([backbone(film, part) for part in torch.split(images, CHUNK)])
