"""Tasks whose images are varied as a backbone's are while it is trained.

A backbone has nearly memorised the TRAIN images of small domains, so tasks made of them leave nothing to
learn. Varied, they are new pictures of known classes. Our own; the paper's tasks are not varied.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fewshift.data.resident import ResidentDomain
from fewshift.errors import FewshiftError
from fewshift.training.augment import Augmentation, augment, draw
from fewshift.training.streamed import StreamedDomain
from fewshift.training.tasks import AroundTasks, ResidentTasks
from fewshift.types import Address, Episode, Labelled, Split


@dataclass(frozen=True)
class VariedTasks(AroundTasks):
    """A source of tasks in which those of some splits are varied, each by the numbers of its address."""

    tasks: ResidentTasks
    augmentation: Augmentation
    never_mirrored: tuple[str, ...] = ()
    splits: tuple[Split, ...] = ("train",)

    def __post_init__(self) -> None:
        half = (0.5, 0.5, 0.5)
        for name, domain in self.tasks.residents.items():
            images = isinstance(domain, ResidentDomain | StreamedDomain)
            if not (images and domain.rule.mean == domain.rule.std == half):
                raise FewshiftError(f"{name}: only images on the scale [-1, 1] can be varied")

    def episode(self, address: Address) -> Episode:
        """The task at this address."""
        found = self.tasks.episode(address)
        if address.split not in self.splits:
            return found
        count = len(found.task.support.labels) + len(found.query.labels)
        key = hashlib.sha256(f"{address.seed} {address.domain} {address.index}".encode()).digest()
        draws = draw(self.augmentation, count, np.random.default_rng(int.from_bytes(key[:8], "big")))
        if address.domain in self.never_mirrored:
            draws = draws.unmirrored(np.ones(count, np.bool_))
        return with_images(found, lambda images: augment((images + 1) * 127.5, self.augmentation, draws))

    def identity(self) -> dict[str, object]:
        """What decides the tasks."""
        varied = {"augmentation": asdict(self.augmentation), "never_mirrored": list(self.never_mirrored)}
        return {**self.tasks.identity(), "varied": {**varied, "splits": list(self.splits)}}


def with_images(episode: Episode, change: Callable[[Tensor], Tensor]) -> Episode:
    """The same task with other images: `change` gets those of support and query together."""
    support, query = episode.task.support, episode.query
    images = change(torch.cat([support.images, query.images]))
    count = len(support.labels)
    task = replace(episode.task, support=Labelled(images[:count], support.labels))
    return replace(episode, task=task, query=Labelled(images[count:], query.labels))
