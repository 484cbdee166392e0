"""Plans to episodes: read the planned images, prepare them by one pixel rule, label them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, runtime_checkable
from typing import Protocol as Interface

import numpy as np

from fewshift.data.buffers import lease
from fewshift.data.domain import Domain, ImageSource, Item
from fewshift.data.pixels import PROTOCOL_84, PixelRule, Planes, prepare_into, prepare_planes_into
from fewshift.data.plan import TaskPlan, describe, plans
from fewshift.data.protocol import Protocol
from fewshift.data.resize import Floats
from fewshift.errors import DataError, FewshiftError
from fewshift.types import Episode, Labelled, Split, Task

if TYPE_CHECKING:
    from torch import Tensor


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
        """The task with its pixels, grouped by class in the order of the labels."""
        (support, support_images), (query, query_images) = (
            lease(sum(map(len, images)), 3, self.rule.size, self.rule.size)
            for images in (plan.support, plan.query)
        )
        self.read_into(support, query, plan)
        return self.episode(plan, support_images, query_images)

    def read_into(self, support: Floats, query: Floats, plan: TaskPlan) -> None:  # (n, 3, size, size) each
        """The pixels alone, written to memory that somebody else keeps; an error names the address."""
        source = self._domain(plan).source
        items = [_items(plan.class_ids, images) for images in (plan.support, plan.query)]
        try:
            _write_images([support, query], items, source, self.rule)
        except (FewshiftError, OSError) as problem:
            raise DataError(f"{describe(plan.address)}: {problem}") from problem
        except Exception as problem:
            raise RuntimeError(f"{describe(plan.address)}: {type(problem).__name__}: {problem}") from problem

    def episode(self, plan: TaskPlan, support: Tensor, query: Tensor) -> Episode:
        """The task, of pixels that have been read."""
        return Episode(
            task=Task(
                support=Labelled(support, _labels(plan.support)),
                way=plan.way,
                seen=self._domain(plan).role == "seen" if self.reveal_seen else None,
            ),
            query=Labelled(query, _labels(plan.query)),
            address=plan.address,
            class_ids=plan.class_ids,
        )

    def _domain(self, plan: TaskPlan) -> Domain:
        domain = self.domains.get(plan.address.domain)
        if domain is None:
            raise FewshiftError(
                f"{describe(plan.address)} cannot be read from {', '.join(self.domains) or 'no domains'}: "
                "give its own domain too"
            )
        return domain


def reader(
    domains: Iterable[Domain], rule: PixelRule = PROTOCOL_84, *, reveal_seen: bool = False
) -> EpisodeReader:
    """A reader of these domains' tasks."""
    return EpisodeReader({domain.name: domain for domain in domains}, rule, reveal_seen)


def load_episode(
    domain: Domain, plan: TaskPlan, rule: PixelRule = PROTOCOL_84, *, reveal_seen: bool = False
) -> Episode:
    """One task of this domain with its pixels."""
    return reader([domain], rule, reveal_seen=reveal_seen)(plan)


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


def _write_images(
    out: Sequence[Floats], items: Sequence[list[Item]], source: ImageSource, rule: PixelRule
) -> None:
    """Support and query, each to its own memory."""
    if rule.kind == "protocol" and isinstance(source, _PlaneSource):
        for images, wanted in zip(out, items, strict=True):
            prepare_planes_into(images, source.read_planes(wanted), rule)
        return
    together = [item for wanted in items for item in wanted]
    found = source.read(together)
    if len(found) != len(together):
        raise RuntimeError(f"its source gave {len(found)} images for {len(together)} places")
    first = 0
    for images in out:
        prepare_into(images, found[first : first + len(images)], rule)
        first += len(images)


def _items(class_ids: Sequence[int], images: Sequence[Sequence[int]]) -> list[Item]:
    return [(c, index) for c, indices in zip(class_ids, images, strict=True) for index in indices]


def _labels(images: Sequence[Sequence[int]]) -> Tensor:  # (n,) int64
    import torch  # here, so that processes that only read images do without

    # By numpy: torch would start its threads for this, and they keep a core busy for a while afterwards.
    return torch.from_numpy(
        np.repeat(np.arange(len(images), dtype=np.int64), [len(indices) for indices in images])
    )
