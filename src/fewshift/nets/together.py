"""An engine whose callers wait for each other: what several threads ask for at a time runs as one batch.

Methods adapt one task at a time. Where several small tasks are at hand, a method runs in a thread of its own
for each task, and the adaptations that they ask for meet here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fewshift.core.descent import Trajectory
from fewshift.core.updates import Update
from fewshift.nets.around import AroundEngine
from fewshift.nets.engine import Engine
from fewshift.types import Task, TaskParams

T = TypeVar("T")


@dataclass
class _Request:
    """An adaptation that somebody waits for."""

    task: Task
    start: TaskParams
    update: Update[Any]
    steps: int
    result: Trajectory | None = None
    problem: BaseException | None = None


@dataclass(eq=False)
class Together(AroundEngine):
    """The engine inside, for one caller or for several at a time."""

    engine: Engine
    expected: int = 0  # threads that may still ask
    requests: list[_Request] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def each(self, works: Sequence[Callable[[], T]]) -> list[T]:
        """Do all of these, each in a thread, and return what they return; one's exception is everybody's."""
        self.expected = len(works)

        def guarded(work: Callable[[], T]) -> T:
            with self._leaving():
                return work()

        with ThreadPoolExecutor(len(works)) as pool:
            return list(pool.map(guarded, works))

    def adapt(self, task: Task, start: TaskParams, update: Update[Any], steps: int) -> Trajectory:
        """Alone at once; inside `each` together with what the other threads ask for."""
        if self.expected == 0:
            return self.engine.adapt(task, start, update, steps)
        request = _Request(task, start, update, steps)
        with self.changed:
            self.requests.append(request)
            self._run_if_all_wait()
            self.changed.wait_for(lambda: request.result is not None or request.problem is not None)
        if request.problem is not None:
            raise request.problem
        assert request.result is not None
        return request.result

    def adapt_many(
        self, tasks: Sequence[Task], starts: Sequence[TaskParams], updates: Sequence[Update[Any]], steps: int
    ) -> list[Trajectory]:
        """As the inner engine does."""
        return self.engine.adapt_many(tasks, starts, updates, steps)

    @contextmanager
    def _leaving(self) -> Iterator[None]:
        """At the end nobody waits for this thread any more."""
        try:
            yield
        finally:
            with self.changed:
                self.expected -= 1
                self._run_if_all_wait()

    def _run_if_all_wait(self) -> None:
        """Run the batch in the last thread that came; hold the condition."""
        if not self.requests or len(self.requests) < self.expected:
            return
        batch, self.requests = self.requests, []
        for steps in dict.fromkeys(request.steps for request in batch):
            alike = [request for request in batch if request.steps == steps]
            try:
                tasks, starts, updates = zip(*((r.task, r.start, r.update) for r in alike), strict=True)
                found = self.engine.adapt_many(tasks, starts, updates, steps)
                for request, result in zip(alike, found, strict=True):
                    request.result = result
            except BaseException as problem:
                for request in alike:
                    request.problem = problem
        self.changed.notify_all()
