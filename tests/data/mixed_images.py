"""A domain of many sizes, and a source that counts what is read."""

from collections.abc import Sequence

import numpy as np

from fewshift.data.arrays import array_domain
from fewshift.data.domain import Domain, Item, Pixels

CLASSES = 8


IMAGES = 12


def domain_of(largest: int, name: str = "mixed", seed: int = 0) -> Domain:
    """Colour and grey images of many sizes up to `largest` a side."""
    random = np.random.default_rng(seed)
    images = []
    for number in range(CLASSES * IMAGES):
        height, width = random.integers(1, largest + 1, 2) if number % 3 else (28, 28)
        image = random.integers(0, 256, (height, width, 3), dtype=np.uint8)
        images.append(image[..., :1].repeat(3, axis=2) if number % 2 else image)
    return array_domain(name, images, np.repeat(np.arange(CLASSES), IMAGES))


def all_items(domain: Domain) -> list[Item]:
    return [(c, i) for c, count in enumerate(domain.spec.images_per_class) for i in range(count)]


class Counting:
    """Counts the images read, and can fail after some."""

    def __init__(self, domain: Domain, fail_after: int = 10**9) -> None:
        self.inner, self.count, self.fail_after = domain.source, 0, fail_after

    def read(self, items: Sequence[Item]) -> list[Pixels]:
        self.count += len(items)
        if self.count > self.fail_after:
            raise KeyboardInterrupt
        return self.inner.read(items)
