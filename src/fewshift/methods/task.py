"""What every method does alike: look at the task before using it, and classify by cosine to centroids."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from fewshift.core.centroids import cosine_logits, prototypes
from fewshift.errors import FewshiftError
from fewshift.types import Predictor, Task

WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def checked(task: Task) -> Task:
    """The task itself, its labels as int64, or one sentence about what is wrong with it."""
    images, labels = task.support.images, task.support.labels
    are_features = images.ndim == 2  # (n, d), for a kit that reads features
    if not are_features and (images.ndim != 4 or images.shape[1] != 3):
        raise FewshiftError(f"support images have shape {tuple(images.shape)}: give (n, 3, height, width)")
    if not images.is_floating_point():
        raise FewshiftError(
            f"support images are {images.dtype}: scale them to floats first, see fewshift.data.pixels.prepare"
        )
    if not bool(images.sum().isfinite()) and not bool(images.isfinite().all()):  # a sum is far quicker
        raise FewshiftError(
            "support images hold numbers that are not finite: look for NaN where they are made"
        )
    if len(images) == 0:
        raise FewshiftError("the support set is empty: give at least one image a class")
    if labels.shape != (len(images),) or labels.dtype not in WHOLE:
        raise FewshiftError(
            f"{len(images)} support images have labels of shape {tuple(labels.shape)}, type {labels.dtype}: "
            "give one whole number an image"
        )
    if task.way < 2:
        raise FewshiftError(f"way is {task.way}: a task needs at least two classes")
    present = torch.unique(labels).tolist()
    if present != list(range(task.way)):
        absent = sorted(set(range(task.way)) - set(present))
        beyond = sorted(set(present) - set(range(task.way)))
        fault = (
            f"class {absent[0]} has no support image" if absent else f"label {beyond[0]} is not below the way"
        )
        raise FewshiftError(f"{fault} (way {task.way}): relabel to 0..way-1 with at least one image a class")
    if labels.dtype == torch.int64:
        return task
    return replace(task, support=replace(task.support, labels=labels.long()))  # as losses and indices want it


def centroid_classifier(embed: Callable[[Tensor], Tensor], task: Task) -> Predictor:
    """Logits by cosine to the centroids of the support set, both embedded alike (spec: scale 10)."""
    with torch.no_grad():
        centres = prototypes(embed(task.support.images), task.support.labels, task.way)

    @torch.no_grad()
    def logits(images: Tensor) -> Tensor:  # (n, 3, h, w) -> (n, way)
        return cosine_logits(embed(images), centres)

    return logits
