"""Accuracies on tasks of classes that are not learned from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from fewshift.core.centroids import cosine_logits, prototypes
from fewshift.core.losses import accuracy
from fewshift.core.updates import Update
from fewshift.nets.engine import Engine
from fewshift.training.distributed import Team
from fewshift.training.loop import Validation
from fewshift.types import Address, Episode, TaskParams

CHUNK = 512  # images per pass


def by_domain(
    addresses: Sequence[Address], accuracy_of: Callable[[Address], Tensor], device: torch.device, team: Team
) -> Validation | None:
    """Mean accuracy per domain, and their mean as the score; None without tasks. The processes share them."""
    if not addresses:
        return None
    domains = list(dict.fromkeys(address.domain for address in addresses))
    sums = torch.zeros(len(domains), 2, dtype=torch.float64, device=device)
    for address in team.share(addresses):
        row = sums[domains.index(address.domain)]
        row[0] += accuracy_of(address).double()
        row[1] += 1
    team.add_up([sums])
    means = (sums[:, 0] / sums[:, 1]).tolist()
    score = sum(means) / len(means)
    return Validation(score, {"accuracy_by_domain": dict(zip(domains, means, strict=True))})


@torch.no_grad()
def centroid_accuracy(embed: Callable[[Tensor], Tensor], episode: Episode) -> Tensor:  # -> ()
    """Of the nearest-centroid classifier on features as they are."""
    support, query = episode.task.support, episode.query
    centres = prototypes(_in_parts(embed, support.images), support.labels, episode.task.way)
    return accuracy(cosine_logits(_in_parts(embed, query.images), centres), query.labels)


def adapted_accuracy(
    engine: Engine, episode: Episode, start: TaskParams, update: Update[Any], steps: int
) -> Tensor:  # -> ()
    """Of the nearest-centroid classifier after `steps` steps (Eq. 16 where they are preconditioned)."""
    final = engine.adapt(episode.task, start, update, steps).params
    return centroid_accuracy(lambda images: engine.embed(final, images), episode)


def _in_parts(embed: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
    return torch.cat([embed(part) for part in torch.split(images, CHUNK)])
