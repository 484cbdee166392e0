"""An engine whose callers wait for each other: what several threads ask for at a time runs as one batch.

Methods adapt one task at a time. Where several small tasks are at hand, a method runs in a thread of its own
for each task, and the adaptations and features that they ask for meet here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from torch import Tensor

from fewshift.core.descent import Trajectory
from fewshift.core.updates import Update
from fewshift.nets.engine import AroundEngine, Engine
from fewshift.types import Task, TaskParams

T = TypeVar("T")


class _Request(NamedTuple):
    """Something that somebody waits for: requests of one kind run together."""

    kind: tuple[Any, ...]  # the engine's function for many, and what it takes behind their arguments
    arguments: tuple[Any, ...]
    answer: Future[Any]


@dataclass(eq=False)
class Together(AroundEngine):
    """The engine inside, for one caller or for several at a time.

    Threads are kept, and one of their own runs the batches: cuDNN's plans belong to a thread, and to make
    them takes longer than to use them.
    """

    engine: Engine
    expected: int = 0  # threads that may still ask
    requests: list[_Request] = field(default_factory=list)
    turn: threading.Lock = field(default_factory=threading.Lock)  # for the two above
    runner: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    callers: ThreadPoolExecutor | None = None
    room: int = 0  # threads that `callers` may have

    def each(self, works: Sequence[Callable[[], T]]) -> list[T]:
        """Do all of these, each in a thread, and return what they return; one's exception is everybody's."""
        if self.callers is None or self.room < len(works):
            self.callers, self.room = ThreadPoolExecutor(len(works)), len(works)
        self.expected = len(works)
        futures = [self.callers.submit(self._work, work) for work in works]
        try:
            return [future.result() for future in futures]
        finally:
            wait(futures)  # before anybody else may ask

    def adapt(self, task: Task, start: TaskParams, update: Update[Any], steps: int) -> Trajectory:
        """Alone at once; inside `each` together with what the other threads ask for."""
        if self.expected == 0:
            return self.engine.adapt(task, start, update, steps)
        found: Trajectory = self._asked((self.engine.adapt_many, steps), task, start, update)
        return found

    def embed(self, params: TaskParams, images: Tensor) -> Tensor:  # (n, 3, h, w) -> (n, d)
        """Likewise."""
        if self.expected == 0:
            return self.engine.embed(params, images)
        found: Tensor = self._asked((self.engine.embed_many,), params, images)
        return found

    def _asked(self, kind: tuple[Any, ...], *arguments: Any) -> Any:
        """Wait for the answer, and compute it if all others are waiting already."""
        request = _Request(kind, arguments, Future())
        with self.turn:
            self.requests.append(request)
            self._run_if_all_wait()
        return request.answer.result()

    def _work(self, work: Callable[[], T]) -> T:
        """At the end, no other thread waits for this one any more."""
        try:
            return work()
        finally:
            with self.turn:
                self.expected -= 1
                self._run_if_all_wait()

    def _run_if_all_wait(self) -> None:
        """Run what is asked for, when all who may still ask have asked; hold the lock."""
        if not self.requests or len(self.requests) < self.expected:
            return
        batch, self.requests = self.requests, []
        for kind in dict.fromkeys(request.kind for request in batch):
            self.runner.submit(_run, kind, [request for request in batch if request.kind == kind]).result()


def _run(kind: tuple[Any, ...], requests: Sequence[_Request]) -> None:
    """Requests of one kind."""
    function, *more = kind
    try:
        found = function(*zip(*(request.arguments for request in requests), strict=True), *more)
        answered = list(zip(requests, found, strict=True))
    except BaseException as problem:
        for request in requests:
            request.answer.set_exception(problem)
    else:
        for request, result in answered:
            request.answer.set_result(result)
