"""What is said between the process that wants tasks and those that read them.

It goes as pickles through pipes between a process and its own children. No file is ever unpickled.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeAlias

from fewshift.data.plan import TaskPlan
from fewshift.types import Address, Episode, Labelled, Task

Packed: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Reader:
    """From now on, read with this."""

    pickled: bytes


@dataclass(frozen=True, slots=True)
class Place:
    """Where images belong: a file of shared memory, and the number of the first float in it."""

    file: Path
    start: int


@dataclass(frozen=True, slots=True)
class Part:
    """Read these classes of a task and write their images to shared memory."""

    plan: TaskPlan  # of the classes alone
    size: int  # pixels
    support: Place
    query: Place


@dataclass(frozen=True, slots=True)
class Whole:
    """Call the reader, which is any function, and send what it gives."""

    plan: TaskPlan


@dataclass(frozen=True, slots=True)
class Failed:
    """The answer to a job that went wrong."""

    problem: Exception
    trace: str


def divide(plan: TaskPlan, parts: int) -> Iterator[TaskPlan]:
    """The task's classes in their order, as at most this many plans with about the same number of images."""
    ends = list(accumulate(len(s) + len(q) for s, q in zip(plan.support, plan.query, strict=True)))
    first = 0
    for part in range(1, max(parts, 1) + 1):
        share = ends[-1] * part / max(parts, 1)
        last = next(place for place, end in enumerate(ends, 1) if end >= share)
        if last > first:
            rows = slice(first, last)
            yield replace(
                plan, class_ids=plan.class_ids[rows], support=plan.support[rows], query=plan.query[rows]
            )
            first = last


def pack(episode: Episode) -> Packed:
    """The task as arrays: tensors would be sent through files of their own."""
    parts = (episode.task.support, episode.query)
    arrays = [array for part in parts for array in (part.images.numpy(), part.labels.numpy())]
    return (*arrays, episode.task.way, episode.task.seen, episode.address, episode.class_ids)


def unpack(packed: Packed) -> Episode:
    """The task again."""
    import torch

    address: Address
    *arrays, way, seen, address, class_ids = packed
    support_images, support_labels, query_images, query_labels = map(torch.from_numpy, arrays)
    task = Task(Labelled(support_images, support_labels), way, seen)
    return Episode(task, Labelled(query_images, query_labels), address, class_ids)
