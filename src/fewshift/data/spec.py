"""What a domain holds, in integers: classes, images per class, splits, and how classes group.

A `Spec` is all the sampler needs; it can be had from a `dataset_spec.json` without a single image
(`fewshift.data.spec_json`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal, TypeAlias

from fewshift.types import SPLITS, Split

Kind: TypeAlias = Literal["flat", "bilevel", "hierarchical"]


@dataclass(frozen=True, slots=True)
class Group:
    """Classes that may share a task: an alphabet (bi-level) or the leaves under a node (hierarchical)."""

    name: str
    class_ids: tuple[int, ...]  # absolute ids


@dataclass(frozen=True)
class Spec:
    """A domain in integers. Class ids are absolute: train classes first, then valid, then test."""

    name: str
    class_names: tuple[str, ...]  # by class id
    images_per_class: tuple[int, ...]  # by class id
    splits: Mapping[Split, range]  # split -> its class ids
    kind: Kind = "flat"
    groups: Mapping[Split, tuple[Group, ...]] = field(default_factory=dict)  # empty when flat

    @property
    def classes(self) -> int:
        """How many classes, over all splits."""
        return len(self.images_per_class)

    def images(self, split: Split) -> int:
        """How many images the split's classes have."""
        return sum(self.images_per_class[c] for c in self.splits[split])

    def fingerprint(self) -> str:
        """A short hash of everything the sampler reads: equal fingerprints give equal tasks."""
        content = {
            "name": self.name,
            "images": self.images_per_class,
            "splits": [[self.splits[s].start, self.splits[s].stop] for s in SPLITS],
            "kind": self.kind,
            "groups": [[[g.name, g.class_ids] for g in self.groups.get(s, ())] for s in SPLITS],
        }
        return hashlib.sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()[:16]

    def names_fingerprint(self) -> str:
        """A short hash of which classes these are: others may have as many images each."""
        return hashlib.sha256(json.dumps(self.class_names).encode()).hexdigest()[:16]


def split_ranges(counts: Mapping[Split, int]) -> dict[Split, range]:
    """The class ids of each split, from how many classes it has."""
    stops = accumulate(counts.get(split, 0) for split in SPLITS)
    return {
        split: range(stop - counts.get(split, 0), stop) for split, stop in zip(SPLITS, stops, strict=True)
    }


def flat_spec(
    name: str, class_names: tuple[str, ...], images_per_class: tuple[int, ...], counts: Mapping[Split, int]
) -> Spec:
    """A flat domain from the number of classes in each split, in the order train, valid, test."""
    classes = sum(counts.values())
    if not len(class_names) == len(images_per_class) == classes:
        raise ValueError(
            f"{name}: {len(class_names)} names, {len(images_per_class)} counts, {classes} classes in splits"
        )
    return Spec(name, class_names, images_per_class, split_ranges(counts))
