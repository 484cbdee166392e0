"""Where a cosine head starts: one row per class of every domain, of which only the direction counts."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from fewshift.core.centroids import prototypes, unit
from fewshift.nets.backbone import Backbone
from fewshift.training.batches import ImageStream

SPREAD = 0.1  # of a row's numbers, as published; longer rows turn more slowly
CHUNK = 512  # images per pass


def random_rows(backbone: Backbone, streams: Sequence[ImageStream], seed: int) -> Tensor:  # -> (classes, d)
    """Any directions."""
    generator = torch.Generator().manual_seed(seed)
    classes = sum(stream.classes for stream in streams)
    return (SPREAD * torch.randn(classes, backbone.dim, generator=generator)).to(backbone.device)


def class_means(backbone: Backbone, streams: Sequence[ImageStream], seed: int) -> Tensor:  # -> (classes, d)
    """The mean direction of each class's features, for a network that already tells classes apart.

    There is nothing to draw, so the seed makes no difference.
    """
    found = []
    for stream in streams:
        rows, labels = (torch.from_numpy(a).to(backbone.device) for a in (stream.rows, stream.labels))
        parts = [unit(backbone.embed(stream.domain.images(some))) for some in rows.split(CHUNK)]  # type: ignore[no-untyped-call]
        found.append(prototypes(torch.cat(parts), labels, stream.classes))
    return SPREAD * math.sqrt(backbone.dim) * unit(torch.cat(found))
