"""Small tasks as a user would bring them: five classes, few images each, drawn from converted domains.

Validation means VALID classes of the domains that were trained on and all classes of the `valid_unseen`
ones; a test means TEST classes of the former and the `unseen` domains. Nothing is in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fewshift.data.domain import Domain
from fewshift.data.pixels import PixelRule
from fewshift.data.records_folder import open_records
from fewshift.data.resident import ResidentDomain, resident
from fewshift.errors import FewshiftError
from fewshift.types import Split

WAY = 5
QUERIES = 10  # a class
READERS = 8  # threads that decode


@dataclass(frozen=True)
class Source:
    """A domain whose images of one split are held in memory."""

    held: ResidentDomain
    split: Split
    role: str

    @property
    def name(self) -> str:
        """The domain's name."""
        return self.held.name


@dataclass(frozen=True)
class OwnTask:
    """Images to learn from and images to ask about, class by class."""

    domain: str
    role: str
    index: int
    shot: int
    support: Tensor  # (way * shot, 3, h, w)
    labels: Tensor  # (way * shot,) on the CPU
    query: Tensor  # (q, 3, h, w)
    asked: Tensor  # (q,) on the CPU
    way: int


def sources(
    records: Path, split: Split, rule: PixelRule, device: torch.device, names: Sequence[str] = ()
) -> list[Source]:
    """The domains that this split is about, or those named among them, decoded once."""
    found = [
        (domain, part)
        for domain in open_records(records, list(names) or None)
        if (part := part_of(domain, split)) is not None
    ]
    if not found:
        raise FewshiftError(f"{records}: no domain has classes for --split {split}")

    def held(each: tuple[Domain, Split]) -> Source:
        domain, part = each
        return Source(resident(domain, rule, device, (part,)), part, domain.role)

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
    held = source.held
    chance = np.random.default_rng([seed, index, shot, *held.name.encode()])
    counts = held.spec.images_per_class
    classes = held.spec.splits[source.split]
    able = [c for c in classes if counts[c] >= shot + QUERIES] or [c for c in classes if counts[c] > shot]
    if len(able) < 2:
        raise FewshiftError(
            f"{held.name}: fewer than two classes have more than {shot} images: fewer --shots"
        )
    chosen = chance.choice(able, min(WAY, len(able)), replace=False).tolist()
    rows: tuple[list[int], list[int]] = ([], [])
    labels: tuple[list[int], list[int]] = ([], [])
    for label, c in enumerate(chosen):
        order = [held.first[c] + place for place in chance.permutation(counts[c]).tolist()]
        for kind, part in enumerate((order[:shot], order[shot : shot + QUERIES])):
            rows[kind].extend(part)
            labels[kind].extend([label] * len(part))
    support, query = (held.images(torch.tensor(part, device=held.device)) for part in rows)
    known, asked = (torch.tensor(part) for part in labels)
    return OwnTask(held.name, source.role, index, shot, support, known, query, asked, len(chosen))
