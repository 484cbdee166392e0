"""Small tasks as a user would bring them: five classes, few images each, drawn from converted domains.

Validation means VALID classes of the domains that were trained on and all classes of the `valid_unseen`
ones; a test means TEST classes of the former and the `unseen` domains. Nothing is in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fewshift.data.domain import Domain
from fewshift.data.resident import ResidentDomain, resident
from fewshift.data.suites import open_folder
from fewshift.errors import FewshiftError
from fewshift.estimator.kits import Opened
from fewshift.nets.choice import choose_engine
from fewshift.nets.feature_kit import moves_only_the_last_map, on_features
from fewshift.progress import Track, silent
from fewshift.training.features import FeatureDomain, featured
from fewshift.types import Split

WAY = 5
QUERIES = 10  # per class
READERS = 8  # threads that decode


@dataclass(frozen=True)
class Source:
    """A domain whose images of one split are held in memory, or their features where the last map moves."""

    held: ResidentDomain | FeatureDomain
    split: Split
    role: str

    def images(self, rows: Sequence[int]) -> Tensor:  # (n, 3, h, w), or (n, d)
        """What a network reads at these rows."""
        places = torch.tensor(rows, device=self.held.device)
        if isinstance(self.held, FeatureDomain):
            return self.held.features[places].float()
        return self.held.images(places)


@dataclass(frozen=True)
class OwnTask:
    """Images to learn from and images to ask about, class by class."""

    domain: str
    role: str
    index: int
    shot: int
    support: Tensor  # (way * shot, 3, h, w), or features (way * shot, d)
    labels: Tensor  # (way * shot,) on the CPU
    query: Tensor  # (q, 3, h, w) or (q, d)
    asked: Tensor  # (q,) on the CPU
    way: int


def ready(opened: Opened) -> Opened:
    """The kit as small tasks are tried with it: on features where the last map alone moves."""
    if not moves_only_the_last_map(opened.kit):
        return opened
    kit = on_features(opened.kit)
    return replace(opened, kit=kit, engine=choose_engine(kit.backbone))


def sources(
    records: Path, split: Split, opened: Opened, names: Sequence[str] = (), track: Track = silent
) -> list[Source]:
    """The domains that this split is about, or those named among them, read once for this kit."""
    found = [
        (domain, part)
        for domain in open_folder(records, list(names) or None)
        if (part := part_of(domain, split)) is not None
    ]
    if not found:
        raise FewshiftError(f"{records}: no domain has classes for --split {split}")

    def held(each: tuple[Domain, Split]) -> Source:
        domain, part = each
        images = resident(domain, opened.rule, opened.device, (part,))
        return Source(images, part, domain.role)

    if moves_only_the_last_map(opened.kit):
        backbone, rule = opened.kit.backbone, opened.rule
        return [
            Source(featured(domain, rule, backbone, (part,), track=track), part, domain.role)
            for domain, part in found
        ]
    with ThreadPoolExecutor(READERS) as pool:
        return list(pool.map(held, found))


def part_of(domain: Domain, split: Split) -> Split | None:
    """Which of a domain's own splits belongs to this one; None where it has no part in it."""
    if domain.role == "seen":
        part = split
    elif split == ("valid" if domain.role == "valid_unseen" else "test"):
        part = "test"  # domains that nothing was trained on have all their classes there
    else:
        return None
    return part if len(domain.spec.splits[part]) >= 2 else None


def draw(source: Source, index: int, shot: int, seed: int = 0) -> OwnTask:
    """Task number `index` of a domain; a class gives its queries from what its shots leave."""
    held, name = source.held, source.held.spec.name
    chance = np.random.default_rng([seed, index, shot, *name.encode()])
    counts = held.spec.images_per_class
    classes = held.spec.splits[source.split]
    able = [c for c in classes if counts[c] >= shot + QUERIES] or [c for c in classes if counts[c] > shot]
    if len(able) < 2:
        raise FewshiftError(f"{name}: fewer than two classes have more than {shot} images: fewer --shots")
    chosen = chance.choice(able, min(WAY, len(able)), replace=False).tolist()
    rows: tuple[list[int], list[int]] = ([], [])
    labels: tuple[list[int], list[int]] = ([], [])
    for label, c in enumerate(chosen):
        order = [held.first[c] + place for place in chance.permutation(counts[c]).tolist()]
        for kind, part in enumerate((order[:shot], order[shot : shot + QUERIES])):
            rows[kind].extend(part)
            labels[kind].extend([label] * len(part))
    support, query = (source.images(part) for part in rows)
    known, asked = (torch.tensor(part) for part in labels)
    return OwnTask(name, source.role, index, shot, support, known, query, asked, len(chosen))
