"""Which images a step of ordinary classification reads: a function of the seed, the domain and the step."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fewshift.training.tasks import Held
from fewshift.types import Split


class HeldImages(Held, Protocol):
    """A domain whose images can be had by number, not only as tasks."""

    @property
    def name(self) -> str:
        """The domain's name."""
        ...

    def rows(self, split: Split) -> tuple[NDArray[np.int64], NDArray[np.int64]]:  # (n,), (n,)
        """Numbers of a split's images and the place of each one's class among the split's classes."""
        ...

    def gather(self, rows: Tensor) -> Tensor:  # (n,) -> (n, 3, h, w) uint8, channels last in memory
        """The levels of these images."""
        ...

    def images(self, rows: Tensor) -> Tensor:  # (n,) -> (n, 3, h, w) float, channels last in memory
        """These images as a network reads them."""
        ...


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
