"""Which images a step of ordinary classification reads: a function of the seed, the domain and the step."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from fewshift.data.resident import ResidentDomain
    from fewshift.training.streamed import StreamedDomain


HeldImages: TypeAlias = "ResidentDomain | StreamedDomain"  # whose images can be had by number, too


@dataclass(frozen=True)
class ImageStream:
    """A domain's TRAIN images in endless random order: every image once, then every image once again.

    A batch may reach from one round into the next, so that none is ever incomplete.
    """

    domain: HeldImages
    batch: int
    seed: int
    rows: NDArray[np.int64]
    labels: NDArray[np.int64]

    @property
    def classes(self) -> int:
        """How many classes the labels name."""
        return len(self.domain.spec.splits["train"])

    def at(self, step: int) -> NDArray[np.int64]:  # (2, batch): rows, labels
        """The images of this step."""
        places = np.arange(step * self.batch, (step + 1) * self.batch)
        rounds, inside = np.divmod(places, len(self.rows))
        key = zlib.crc32(self.domain.name.encode())
        order = np.empty(self.batch, np.int64)
        for number in np.unique(rounds):
            here = rounds == number
            order[here] = _shuffled(self.seed, key, int(number), len(self.rows))[inside[here]]
        return np.stack([self.rows[order], self.labels[order]])


def image_stream(domain: HeldImages, batch: int, seed: int) -> ImageStream:
    """The stream of a domain's TRAIN images."""
    rows, labels = domain.rows("train")
    return ImageStream(domain, batch, seed, rows, labels)


@lru_cache(maxsize=32)
def _shuffled(seed: int, domain: int, number: int, count: int) -> NDArray[np.int64]:
    return np.random.default_rng([seed, domain, number]).permutation(count)
