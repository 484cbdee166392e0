"""Batches of a few fixed shapes: fits that end at different times would else need a graph of every size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fewshift.core.descent import Trajectory
from fewshift.core.updates import Update
from fewshift.nets.engine import AroundEngine, Engine
from fewshift.nets.packing import TOGETHER
from fewshift.types import Task, TaskParams

MOST = 32  # tasks of a batch


@dataclass(frozen=True)
class EvenBatches(AroundEngine):
    """The engine inside; tasks of one size run in batches of one number of tasks, filled up with copies."""

    engine: Engine

    def adapt_many(
        self, tasks: Sequence[Task], starts: Sequence[TaskParams], updates: Sequence[Update[Any]], steps: int
    ) -> list[Trajectory]:
        """Batches by size; copies are dropped."""
        sizes: dict[int, list[int]] = {}
        for number, task in enumerate(tasks):
            sizes.setdefault(len(task.support.labels), []).append(number)
        found: dict[int, Trajectory] = {}
        for size, numbers in sizes.items():
            count = most_together(size)
            for first in range(0, len(numbers), count):
                chosen = numbers[first : first + count]
                filled = chosen + chosen[-1:] * (count - len(chosen))
                done = self.engine.adapt_many(
                    [tasks[n] for n in filled],
                    [starts[n] for n in filled],
                    [updates[n] for n in filled],
                    steps,
                )
                found |= dict(zip(chosen, done, strict=False))
        return [found[number] for number in range(len(tasks))]


def most_together(size: int) -> int:
    """So many tasks of this size fill a batch.

    >>> most_together(5), most_together(25), most_together(50), most_together(600)
    (32, 20, 10, 1)
    """
    return max(1, min(MOST, TOGETHER // size))
