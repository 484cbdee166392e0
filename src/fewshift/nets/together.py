"""An engine whose callers wait for each other: what several threads ask for at a time runs as one batch.

Methods adapt one task at a time. Where several small tasks are at hand, a method runs in a thread of its own
for each task, and the adaptations and features that they ask for meet here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from torch import Tensor

from fewshift.core.descent import Trajectory
from fewshift.core.updates import Update
from fewshift.nets.around import AroundEngine
from fewshift.nets.engine import Engine
from fewshift.types import Task, TaskParams

T = TypeVar("T")


@dataclass(eq=False)
class _Request:
    """Something that somebody waits for: requests of one kind run together."""

    kind: tuple[Any, ...]
    arguments: tuple[Any, ...]
    result: Any = None
    problem: BaseException | None = None
    answered: bool = False


@dataclass(eq=False)
class Together(AroundEngine):
    """The engine inside, for one caller or for several at a time.

    Threads are kept, and one of their own runs the batches: cuDNN's plans belong to a thread, and to make
    them takes longer than to use them.
    """

    engine: Engine
    expected: int = 0  # threads that may still ask
    requests: list[_Request] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)
    runner: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    callers: ThreadPoolExecutor | None = None
    room: int = 0  # threads that `callers` may have

    def each(self, works: Sequence[Callable[[], T]]) -> list[T]:
        """Do all of these, each in a thread, and return what they return; one's exception is everybody's."""
        if self.callers is None or self.room < len(works):
            self.callers, self.room = ThreadPoolExecutor(len(works)), len(works)
        self.expected = len(works)

        def guarded(work: Callable[[], T]) -> T:
            with self._leaving():
                return work()

        futures = [self.callers.submit(guarded, work) for work in works]
        try:
            return [future.result() for future in futures]
        finally:
            wait(futures)  # before anybody else may ask

    def adapt(self, task: Task, start: TaskParams, update: Update[Any], steps: int) -> Trajectory:
        """Alone at once; inside `each` together with what the other threads ask for."""
        if self.expected == 0:
            return self.engine.adapt(task, start, update, steps)
        found: Trajectory = self._asked(_Request(("adapt", steps), (task, start, update)))
        return found

    def embed(self, params: TaskParams, images: Tensor) -> Tensor:  # (n, 3, h, w) -> (n, d)
        """Likewise."""
        if self.expected == 0:
            return self.engine.embed(params, images)
        found: Tensor = self._asked(_Request(("embed",), (params, images)))
        return found

    def adapt_many(
        self, tasks: Sequence[Task], starts: Sequence[TaskParams], updates: Sequence[Update[Any]], steps: int
    ) -> list[Trajectory]:
        """As the inner engine does."""
        return self.engine.adapt_many(tasks, starts, updates, steps)

    def _asked(self, request: _Request) -> Any:
        """Wait for the answer, and compute it if all others are waiting already."""
        with self.changed:
            self.requests.append(request)
            self._run_if_all_wait()
            self.changed.wait_for(lambda: request.answered)
        if request.problem is not None:
            raise request.problem
        return request.result

    @contextmanager
    def _leaving(self) -> Iterator[None]:
        """At the end, no other thread waits for this one any more."""
        try:
            yield
        finally:
            with self.changed:
                self.expected -= 1
                self._run_if_all_wait()

    def _run_if_all_wait(self) -> None:
        """Run what is asked for, when all who may still ask have asked; hold the condition."""
        if not self.requests or len(self.requests) < self.expected:
            return
        batch, self.requests = self.requests, []
        for kind in dict.fromkeys(request.kind for request in batch):
            alike = [request for request in batch if request.kind == kind]
            self.runner.submit(self._run, kind, alike).result()
        self.changed.notify_all()

    def _run(self, kind: tuple[Any, ...], requests: Sequence[_Request]) -> None:
        """Requests of one kind."""
        try:
            columns: list[Any] = list(zip(*(request.arguments for request in requests), strict=True))
            found: Sequence[Any] = (
                self.engine.embed_many(*columns)
                if kind == ("embed",)
                else self.engine.adapt_many(*columns, *kind[1:])
            )
            for request, result in zip(requests, found, strict=True):
                request.result = result
        except BaseException as problem:
            for request in requests:
                request.problem = problem
        for request in requests:
            request.answered = True
