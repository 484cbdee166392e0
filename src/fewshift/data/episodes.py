"""Plans to episodes: read the planned images, prepare them by one pixel rule, label them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol as Interface
from typing import runtime_checkable

import torch
from torch import Tensor

from fewshift.data.domain import Domain, ImageSource, Item
from fewshift.data.pixels import PROTOCOL_84, PixelRule, Planes, prepare, prepare_planes
from fewshift.data.plan import TaskPlan, describe, plans
from fewshift.data.protocol import Protocol
from fewshift.errors import DataError, FewshiftError
from fewshift.types import Episode, Labelled, Split, Task


@dataclass(frozen=True)
class EpisodeReader:
    """Reads planned tasks of these domains; a value that threads share and processes can be given.

    `reveal_seen` puts into `Task.seen` whether the domain was trained on. The published protocol does so; a
    result made that way says so.
    """

    domains: Mapping[str, Domain]
    rule: PixelRule = PROTOCOL_84
    reveal_seen: bool = False

    def __call__(self, plan: TaskPlan) -> Episode:
        """The task with its pixels."""
        domain = self.domains.get(plan.address.domain)
        if domain is None:
            raise FewshiftError(
                f"{describe(plan.address)} cannot be read from {', '.join(self.domains) or 'no domains'}: "
                "give its own domain too"
            )
        return load_episode(domain, plan, self.rule, reveal_seen=self.reveal_seen)


def reader(
    domains: Iterable[Domain], rule: PixelRule = PROTOCOL_84, *, reveal_seen: bool = False
) -> EpisodeReader:
    """A reader of these domains' tasks."""
    return EpisodeReader({domain.name: domain for domain in domains}, rule, reveal_seen)


def load_episode(
    domain: Domain, plan: TaskPlan, rule: PixelRule = PROTOCOL_84, *, reveal_seen: bool = False
) -> Episode:
    """The task with its pixels, grouped by class in the order of the labels; an error names the address."""
    if domain.name != plan.address.domain:
        raise ValueError(f"{describe(plan.address)} cannot be read from {domain.name}")
    support, query = _items(plan.class_ids, plan.support), _items(plan.class_ids, plan.query)
    try:
        support_images, query_images = _images(domain.source, support, query, rule)
    except (FewshiftError, OSError) as problem:
        raise DataError(f"{describe(plan.address)}: {problem}") from problem
    except Exception as problem:
        raise RuntimeError(f"{describe(plan.address)}: {type(problem).__name__}: {problem}") from problem
    return Episode(
        task=Task(
            support=Labelled(support_images, _labels(plan.support)),
            way=plan.way,
            seen=domain.role == "seen" if reveal_seen else None,
        ),
        query=Labelled(query_images, _labels(plan.query)),
        address=plan.address,
        class_ids=plan.class_ids,
    )


def episodes(
    domain: Domain,
    split: Split,
    protocol: Protocol,
    seed: int,
    indices: Iterable[int],
    *,
    rule: PixelRule = PROTOCOL_84,
    reveal_seen: bool = False,
) -> Iterator[Episode]:
    """The tasks with these numbers, one after the other: `range(600)`, or `itertools.count()` without end."""
    read = reader([domain], rule, reveal_seen=reveal_seen)
    return map(read, plans(domain.spec, split, protocol, seed, indices))


@runtime_checkable
class _PlaneSource(Interface):
    """A source that keeps its images in the form in which they are resized."""

    def read_planes(self, items: Sequence[Item]) -> Iterator[Planes]:
        """The images at these places, in batches of one shape."""
        ...


def _images(
    source: ImageSource, support: list[Item], query: list[Item], rule: PixelRule
) -> tuple[Tensor, Tensor]:
    if rule.kind == "protocol" and isinstance(source, _PlaneSource):
        return (
            prepare_planes(source.read_planes(support), len(support), rule),
            prepare_planes(source.read_planes(query), len(query), rule),
        )
    images = source.read([*support, *query])
    if len(images) != len(support) + len(query):
        raise RuntimeError(f"its source gave {len(images)} images for {len(support) + len(query)} places")
    return prepare(images[: len(support)], rule), prepare(images[len(support) :], rule)


def _items(class_ids: Sequence[int], images: Sequence[Sequence[int]]) -> list[Item]:
    return [(c, index) for c, indices in zip(class_ids, images, strict=True) for index in indices]


def _labels(images: Sequence[Sequence[int]]) -> Tensor:  # (n,) int64
    counts = torch.tensor([len(indices) for indices in images])
    return torch.repeat_interleave(torch.arange(len(images)), counts)
