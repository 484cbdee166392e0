"""Sets of images that are each of one domain: what FLUTE's template and its blender learn from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fewshift.data.random import keyed_stream
from fewshift.data.resident import ResidentDomain, to_device
from fewshift.training.augment import NONE, Augmentation, augment, draw
from fewshift.training.batches import ImageStream
from fewshift.training.distributed import ALONE, Team
from fewshift.types import Split


class Sets(NamedTuple):
    """Some sets of equal size."""

    images: Tensor  # (sets, size, 3, h, w)
    labels: Tensor  # (sets, size) the place of a class among its domain's
    domains: Tensor  # (sets,)


@dataclass(frozen=True)
class DomainSets:
    """`count` sets per step, of `size` images each; a function of the seed and the step alone.

    Domains take turns, or, where there is a `favourite`, it gives a set with probability a half and else all
    domains alike, itself included, as published.
    """

    streams: tuple[ImageStream, ...]
    count: int
    size: int
    augmentation: Augmentation
    seed: int
    favourite: int | None = None
    never_mirrored: tuple[str, ...] = ()  # letters and digits, where images are mirrored

    def at(self, step: int, team: Team = ALONE) -> Sets:
        """This process's sets of this step."""
        team.check_enough(self.count, "sets of images")
        mine = team.share(range(self.count))
        chosen = [self._domain(step * self.count + number) for number in mine]
        streams = [self.streams[domain] for domain, _ in chosen]
        drawn = np.stack([stream.at(turn) for stream, (_, turn) in zip(streams, chosen, strict=True)])
        places = (np.array(mine)[:, None] * self.size + np.arange(self.size)).reshape(-1)
        varied = draw(self.augmentation, self.count * self.size, np.random.default_rng([self.seed, step]))
        spared = [stream.domain.name in self.never_mirrored for stream in streams]
        varied = varied.of(places).unmirrored(np.repeat(spared, self.size))
        device = self.streams[0].domain.device
        rows, labels = to_device(np.ascontiguousarray(drawn.swapaxes(0, 1)), device)  # (sets, size) each
        levels = [
            stream.domain.gather(part).permute(0, 2, 3, 1) for stream, part in zip(streams, rows, strict=True)
        ]
        images = augment(torch.cat(levels).permute(0, 3, 1, 2), self.augmentation, varied)
        owners = to_device(np.array([domain for domain, _ in chosen], np.int64), device)
        return Sets(images.contiguous().view(len(mine), self.size, *images.shape[1:]), labels, owners)

    def _domain(self, number: int) -> tuple[int, int]:
        """The domain of a set, and which of the domain's sets it is."""
        count = len(self.streams)
        if self.favourite is None:
            return number % count, number // count
        stream = keyed_stream("sets", self.seed, number)
        return self.favourite if stream.below(2) else stream.below(count), number


def domain_sets(
    domains: Mapping[str, ResidentDomain],
    split: Split,
    *,
    count: int,
    size: int,
    seed: int,
    augmentation: Augmentation = NONE,
    favourite: str | None = None,
    never_mirrored: tuple[str, ...] = (),
) -> DomainSets:
    """Sets of these domains' images of a split."""
    streams = tuple(ImageStream(d, size, seed, *d.rows(split)) for d in domains.values())
    place = None if favourite is None or favourite not in domains else list(domains).index(favourite)
    return DomainSets(streams, count, size, augmentation, seed, place, never_mirrored)
