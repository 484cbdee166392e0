"""Domains whose images are read again whenever they are asked for, because they do not fit into the memory.

The tasks equal those of resident images to the bit, so a run may go on either way. While a task is learned
from, the one that will most likely follow is read: training asks a domain for its tasks in even steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from math import inf

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fewshift.data.domain import Domain, Item
from fewshift.data.pixels import PixelRule
from fewshift.data.plan import TaskPlan, choices, describe, plan_task
from fewshift.data.protocol import VARYING, Protocol
from fewshift.data.resident import as_images, resident, to_device, whole_levels
from fewshift.data.spec import Spec
from fewshift.errors import DataError, FewshiftError
from fewshift.progress import Track, silent
from fewshift.training.batches import HeldImages
from fewshift.training.free_memory import free_memory
from fewshift.training.tasks import Held
from fewshift.types import SPLITS, Address, Episode, Labelled, Split, Task

SHARE = 0.5  # of the free memory that resident images may take before they are streamed
WORKERS = 2
AT_ONCE = 16  # images that a thread reads


class StreamedDomain:
    """A `Held` that holds nothing but one task read ahead. Only tasks of `protocol` are read ahead."""

    def __init__(
        self,
        domain: Domain,
        rule: PixelRule,
        device: torch.device | str = "cpu",
        protocol: Protocol = VARYING,
        pool: ThreadPoolExecutor | None = None,
    ) -> None:
        self.domain, self.rule, self.protocol = domain, rule, protocol
        self.device = torch.device(device)
        self.pool = pool or ThreadPoolExecutor(1, "fewshift-stream")
        self.foreseen = 0  # tasks that had been read, or were being read, when they were asked for
        self._guess = _Guess()
        self._ahead: tuple[TaskPlan, Future[Tensor]] | None = None

    @property
    def spec(self) -> Spec:
        """The whole domain's."""
        return self.domain.spec

    @property
    def name(self) -> str:
        """The domain's name."""
        return self.domain.name

    @property
    def made_of(self) -> str:
        """The name of its pixels."""
        return self.rule.name

    def rows(self, split: Split) -> tuple[NDArray[np.int64], NDArray[np.int64]]:  # (n,), (n,)
        """Numbers of a split's images among all, and the place of each one's class among the split's."""
        classes = self.spec.splits[split]
        counts = [self.spec.images_per_class[c] for c in classes]
        first = int(self._ends[classes.start - 1]) if classes.start else 0
        return np.arange(first, first + sum(counts)), np.repeat(np.arange(len(classes)), counts)

    def gather(self, rows: Tensor) -> Tensor:  # (n,) -> (n, 3, h, w) uint8, channels last in memory
        """The levels of these images, read by all threads."""
        wanted = rows.cpu().numpy()
        classes = np.searchsorted(self._ends, wanted, side="right")
        firsts = np.concatenate([[0], self._ends])[classes]
        items = list(zip(classes.tolist(), (wanted - firsts).tolist(), strict=True))
        parts = [items[start : start + AT_ONCE] for start in range(0, len(items), AT_ONCE)]
        levels = torch.cat(list(self.pool.map(self._levels, parts)))
        kept = levels.contiguous(memory_format=torch.channels_last)
        return to_device(kept.permute(0, 2, 3, 1).numpy(), self.device).permute(0, 3, 1, 2)

    def images(self, rows: Tensor) -> Tensor:  # (n,) -> (n, 3, h, w) float, channels last in memory
        """These images as a network reads them."""
        return as_images(self.gather(rows), self.rule)

    @cached_property
    def _ends(self) -> NDArray[np.int64]:
        """The number after each class's last image."""
        return np.cumsum(self.spec.images_per_class, dtype=np.int64)

    def episode(self, plan: TaskPlan) -> Episode:
        """The task of this plan, on the device; whether its domain was trained on is not revealed."""
        levels = self._take(plan)
        self._read_ahead(plan.address)
        images = as_images(to_device(levels.numpy(), self.device), self.rule)
        labels = np.concatenate([_labels(plan.support), _labels(plan.query)])
        places = to_device(labels, self.device)
        shots = sum(plan.shots)
        return Episode(
            Task(Labelled(images[:shots], places[:shots]), plan.way),
            Labelled(images[shots:], places[shots:]),
            plan.address,
            plan.class_ids,
        )

    def _take(self, plan: TaskPlan) -> Tensor:
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] == plan:
            self.foreseen += 1
            return ahead[1].result()
        if ahead is not None:
            ahead[1].cancel()
        return self._read(plan)

    def _read_ahead(self, address: Address) -> None:
        index = self._guess.after(address)
        if index is not None:
            among = choices(self.spec, address.split, self.protocol)
            plan = plan_task(among, address.seed, index)
            self._ahead = plan, self.pool.submit(self._read, plan)

    def _read(self, plan: TaskPlan) -> Tensor:  # (n, 3, h, w) uint8
        parts = (plan.support, plan.query)
        items = [(c, i) for part in parts for c, row in zip(plan.class_ids, part, strict=True) for i in row]
        try:
            return self._levels(items)
        except (FewshiftError, OSError) as problem:
            raise DataError(f"{describe(plan.address)}: {problem}") from problem

    def _levels(self, items: Sequence[Item]) -> Tensor:  # (n, 3, h, w) uint8
        return whole_levels(self.domain.source.read(items), self.rule)


class _Guess:
    """The number of the task that follows, where the last one was guessed right."""

    def __init__(self) -> None:
        self._last: Address | None = None
        self._step: int | None = None
        self._follows: dict[int, int] = {}  # a step between two numbers -> the step that came after it
        self._expected: int | None = None

    def after(self, address: Address) -> int | None:
        last, right = self._last, self._expected == address.index
        self._last = address
        if last is None or (last.seed, last.split) != (address.seed, address.split):
            self._step = self._expected = None
            return None
        step = address.index - last.index
        if self._step is not None:
            self._follows[self._step] = step
        self._step = step
        following = self._follows.get(step, step)
        self._expected = address.index + following if address.index + following >= 0 else None
        return self._expected if right or len(self._follows) < 2 else None


def held_domains(
    domains: Sequence[Domain],
    rule: PixelRule,
    device: torch.device | str = "cpu",
    splits: Iterable[Split] = SPLITS,
    *,
    protocol: Protocol = VARYING,
    stream: bool | None = None,
    track: Track = silent,
) -> dict[str, Held]:
    """The domains by name: in memory, or streamed if they would take more than half of what is free."""
    wanted = tuple(splits)
    if stream is None:
        free = free_memory(torch.device(device))
        stream = free is not None and decoded_size(domains, rule, wanted) > SHARE * free
    if not stream:
        return {domain.name: resident(domain, rule, device, wanted, track) for domain in domains}
    pool = ThreadPoolExecutor(WORKERS, "fewshift-stream")
    return {domain.name: StreamedDomain(domain, rule, device, protocol, pool) for domain in domains}


def held_images(
    domains: Sequence[Domain],
    rule: PixelRule,
    device: torch.device | str = "cpu",
    splits: Iterable[Split] = SPLITS,
    *,
    protocol: Protocol = VARYING,
    stream: bool | None = None,
    track: Track = silent,
) -> dict[str, HeldImages]:
    """The domains by name, for what reads images by number, too: every update asks each domain for some.

    The smaller ones are in memory, as many as half of what is free has room for; the others are streamed.
    """
    wanted = tuple(splits)
    free = free_memory(torch.device(device)) if stream is None else None
    room = 0.0 if stream else inf if free is None else SHARE * free
    kept: set[str] = set()
    for domain in sorted(domains, key=lambda domain: decoded_size([domain], rule, wanted)):
        room -= decoded_size([domain], rule, wanted)
        if room < 0:
            break
        kept.add(domain.name)
    pool = ThreadPoolExecutor(WORKERS, "fewshift-stream")
    return {
        domain.name: resident(domain, rule, device, wanted, track)
        if domain.name in kept
        else StreamedDomain(domain, rule, device, protocol, pool)
        for domain in domains
    }


def decoded_size(domains: Iterable[Domain], rule: PixelRule, splits: Sequence[Split]) -> int:
    """Bytes that the images of these splits take when they are resident."""
    specs = [domain.spec for domain in domains]
    images = sum(spec.images_per_class[c] for spec in specs for split in splits for c in spec.splits[split])
    return int(images) * rule.size**2 * 3


def _labels(images: Sequence[Sequence[int]]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.repeat(np.arange(len(images), dtype=np.int64), [len(row) for row in images])
