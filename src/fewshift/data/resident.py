"""A domain's images, decoded once and held on a device, from which tasks are gathered by index.

Training reads every image many times; with the pixels resident a task costs one gather and no decoding.
Images are kept as 8-bit levels. So tasks equal those of `fewshift.data.episodes` to the bit on the CPU
wherever the rule gives whole levels: native sizes, the practical rule, a rounded rule. Where the protocol's
resize gives fractions, a value differs by half a level at most, 1/255 on the scale [-1, 1].
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fewshift.data.domain import Domain, Item, Pixels
from fewshift.data.pixels import PixelRule, prepare
from fewshift.data.plan import TaskPlan
from fewshift.data.spec import Spec
from fewshift.errors import DataError
from fewshift.progress import Track, silent
from fewshift.types import SPLITS, Episode, Labelled, Split, Task

CHUNK = 512  # images decoded at a time


@dataclass(frozen=True)
class ResidentDomain:
    """Images of some splits of a domain as one tensor on a device. `spec` is the whole domain's."""

    spec: Spec
    rule: PixelRule
    levels: Tensor  # (n, h, w, c) uint8; one channel stands for three equal ones
    first: Mapping[int, int]  # class id -> row of its first image

    @property
    def name(self) -> str:
        """The domain's name."""
        return self.spec.name

    @property
    def device(self) -> torch.device:
        """Where the images are."""
        return self.levels.device

    @property
    def made_of(self) -> str:
        """The name of its pixels."""
        return self.rule.name

    def rows(self, split: Split) -> tuple[NDArray[np.int64], NDArray[np.int64]]:  # (n,), (n,)
        """Rows of a split's images and the place of each one's class among the split's classes."""
        classes = self.spec.splits[split]
        counts = [self.spec.images_per_class[c] for c in classes]
        rows = [np.arange(self._start(c), self._start(c) + n) for c, n in zip(classes, counts, strict=True)]
        labels = np.repeat(np.arange(len(classes)), counts)
        return np.concatenate(rows).astype(np.int64), labels.astype(np.int64)

    def gather(self, rows: Tensor) -> Tensor:  # (n,) -> (n, 3, h, w) uint8, channels last in memory
        """The levels of these images."""
        images = self.levels.index_select(0, rows).permute(0, 3, 1, 2)
        return images.expand(-1, 3, -1, -1)

    def images(self, rows: Tensor) -> Tensor:  # (n,) -> (n, 3, h, w) float, channels last in memory
        """These images as a network reads them."""
        return as_images(self.gather(rows), self.rule)

    def episode(self, plan: TaskPlan) -> Episode:
        """The task of this plan, on the device; whether its domain was trained on is not revealed."""
        support = _flat(plan.support, plan.class_ids, self)
        query = _flat(plan.query, plan.class_ids, self)
        place = to_device(np.concatenate([support, query], axis=1), self.device)
        images = self.images(place[0])
        shots = support.shape[1]
        return Episode(
            Task(Labelled(images[:shots], place[1, :shots]), plan.way),
            Labelled(images[shots:], place[1, shots:]),
            plan.address,
            plan.class_ids,
        )

    def to(self, device: torch.device | str) -> ResidentDomain:
        """The same on another device."""
        return replace(self, levels=self.levels.to(device))

    def _start(self, class_id: int) -> int:
        if class_id not in self.first:
            raise DataError(
                f"{self.name}: the images of class {class_id} ({self.spec.class_names[class_id]}) are not "
                "held: name their split when making it resident"
            )
        return self.first[class_id]


def resident(
    domain: Domain,
    rule: PixelRule,
    device: torch.device | str = "cpu",
    splits: Iterable[Split] = SPLITS,
    track: Track = silent,
) -> ResidentDomain:
    """Decode and resize the images of these splits, once."""
    spec, wanted = domain.spec, set(splits)
    levels = _room_for(spec, sum(spec.images(split) for split in wanted), rule)
    first: dict[int, int] = {}
    items: list[Item] = []
    for split in SPLITS:
        for class_id in spec.splits[split] if split in wanted else ():
            first[class_id] = len(items)
            items += [(class_id, image) for image in range(spec.images_per_class[class_id])]
    grey = True
    for start in track(range(0, len(items), CHUNK), label=f"read {spec.name}", total=-(-len(items) // CHUNK)):
        images = domain.source.read(items[start : start + CHUNK])
        grey = grey and all(image.shape[2] == 1 for image in images)
        levels[start : start + CHUNK] = whole_levels(images, rule).permute(0, 2, 3, 1).numpy()
    held = torch.from_numpy(np.ascontiguousarray(levels[..., :1]) if grey else levels)
    return ResidentDomain(spec, rule, held.to(device), first)


def _room_for(spec: Spec, images: int, rule: PixelRule) -> NDArray[np.uint8]:  # (n, h, w, 3)
    try:
        return np.empty((images, rule.size, rule.size, 3), np.uint8)
    except (MemoryError, ValueError) as problem:  # more than there is, or than can be numbered
        size = images * rule.size**2 * 3 / 2**30
        raise DataError(
            f"{spec.name}: its {images:,} images of {rule.size} pixels take {size:,.0f} GiB, which this "
            "machine has not: name other domains with --domains"
        ) from problem


def whole_levels(images: Sequence[Pixels], rule: PixelRule) -> Tensor:  # (n, 3, h, w) uint8
    """The images at the rule's size, in 8-bit levels, before its mean and standard deviation."""
    plain = replace(rule, mean=(0.0, 0.0, 0.0), std=(1 / 255, 1 / 255, 1 / 255))  # the levels themselves
    return prepare(images, plain).round_().to(torch.uint8)


def as_images(levels: Tensor, rule: PixelRule) -> Tensor:  # (n, 3, h, w) uint8 -> float, channels last
    """Levels as a network reads them."""
    values = levels.to(torch.float32, memory_format=torch.channels_last)
    if rule.mean == rule.std == (0.5, 0.5, 0.5):
        return values.mul_(2 / 255).sub_(1)
    pairs = [(1 / (255 * s), m / s) for m, s in zip(rule.mean, rule.std, strict=True)]
    scale, shift = to_device(np.array(pairs, np.float32), levels.device).T
    return values.mul_(scale[:, None, None]).sub_(shift[:, None, None])


def to_device(values: NDArray[Any], device: torch.device) -> Tensor:
    """A copy on the device; from pinned memory where that spares the host a wait."""
    tensor = torch.from_numpy(values)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


def _flat(
    chosen: Sequence[Sequence[int]], class_ids: Sequence[int], domain: ResidentDomain
) -> NDArray[np.int64]:  # (2, n): rows, labels
    rows = [domain._start(c) + i for c, images in zip(class_ids, chosen, strict=True) for i in images]
    labels = np.repeat(np.arange(len(chosen)), [len(images) for images in chosen])
    return np.stack([np.array(rows, np.int64), labels.astype(np.int64)])
