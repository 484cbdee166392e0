"""Processes that read tasks into shared memory, side by side and without the interpreter's lock.

A large task is divided by classes, so that all processes work on the task that is wanted next. The processes
are kept for the next reading; they end with this process, however it ends.
"""

from __future__ import annotations

import atexit
import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing.connection import wait
from typing import Any, TypeAlias

import torch

from fewshift.data.episodes import EpisodeReader
from fewshift.data.plan import TaskPlan
from fewshift.data.reading_messages import Failed, Part, Place, Reader, Whole, divide, unpack
from fewshift.data.resize import Floats
from fewshift.data.shared_memory import SharedMemory
from fewshift.errors import FewshiftError
from fewshift.types import Episode

Read: TypeAlias = Callable[[TaskPlan], Episode]
WORTH_A_PART = 48  # images: fewer are not worth another message
ENOUGH = 400  # images that wait or are being read: 34 MB by the protocol's rule
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from fewshift.data.reading_worker import main; main()"
)
_ENDED = (
    "a process that reads tasks was ended from outside or could not start: "
    "use fewer workers if memory ran out, or read with threads"
)


class CannotStart(FewshiftError):
    """There are no processes to read with."""


class Processes:
    """A group of them, for one reading at a time."""

    def __init__(self, count: int) -> None:
        self.owner = os.getpid()
        self._memory = SharedMemory()
        self._read: Read | None = None
        self._load = [0] * count  # images that each has to read
        one_core = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        self._started = False
        folder = self._memory.folder()
        self._processes: list[subprocess.Popen[bytes]] = []
        try:
            for _ in range(count):
                self._processes.append(_start({**os.environ, **one_core}, folder))
        except OSError as problem:
            self.end()
            raise CannotStart(f"{sys.executable}: {problem}: read with threads") from problem

    @property
    def count(self) -> int:
        """How many."""
        return len(self._processes)

    def alive(self) -> bool:
        """Whether none has ended."""
        return all(process.poll() is None for process in self._processes)

    def ready(self) -> bool:
        """Whether all have started."""
        waiting = [process.stdout for process in self._processes if process.stdout]
        return self._started or len(wait(waiting, timeout=0)) == self.count  # type: ignore[arg-type]

    def use(self, read: Read) -> None:
        """Read with this from now on."""
        try:
            job = Reader(pickle.dumps(read))
        except Exception as problem:
            raise FewshiftError(
                f"the reader of tasks cannot be given to a process ({problem}): read with threads"
            ) from problem
        if not self._started:
            try:
                for number in range(self.count):
                    self._receive(number)
            except FewshiftError as problem:
                raise CannotStart(*problem.args) from problem
            self._started = True
        for number in range(self.count):
            self._send(number, job)
        self._read = read

    def room(self) -> bool:
        """Whether another task should wait."""
        return sum(self._load) < ENOUGH

    def submit(self, plan: TaskPlan) -> Callable[[], Episode]:
        """Begin to read; the result waits for the task. Results must be called for in this order."""
        read = self._read
        if isinstance(read, EpisodeReader):
            return self._submit_parts(read, plan)
        number = self._least_busy()
        self._send(number, Whole(plan), _images(plan))
        return lambda: unpack(self._answer(number, _images(plan)))

    def read_here(self, read: EpisodeReader, plan: TaskPlan) -> Episode:
        """The task, read by this process into the memory that the others will use."""
        (_, support), (_, query) = self._lend(read, plan)
        read.read_into(support, query, plan)
        return read.episode(plan, torch.from_numpy(support), torch.from_numpy(query))

    def _submit_parts(self, read: EpisodeReader, plan: TaskPlan) -> Callable[[], Episode]:
        (place, support), (query_place, query) = self._lend(read, plan)
        size = support.shape[-1]
        sent: list[tuple[int, int]] = []  # who, how many images
        for part in divide(plan, min(self.count, _images(plan) // WORTH_A_PART)):
            number, count = self._least_busy(), _images(part)
            self._send(number, Part(part, size, place, query_place), count)
            sent.append((number, count))
            place = replace(place, start=place.start + _floats(part.support, size))
            query_place = replace(query_place, start=query_place.start + _floats(part.query, size))

        def finish() -> Episode:
            for number, count in sent:
                self._answer(number, count)
            return read.episode(plan, torch.from_numpy(support), torch.from_numpy(query))

        return finish

    def _lend(self, read: EpisodeReader, plan: TaskPlan) -> list[tuple[Place, Floats]]:
        """Memory for the support and for the query."""
        size = read.rule_of(plan).size
        lent = [self._memory.lend(_floats(images, size)) for images in (plan.support, plan.query)]
        return [(Place(file, start), floats.reshape(-1, 3, size, size)) for file, start, floats in lent]

    def end(self) -> None:
        """Stop them at once."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with suppress(OSError):  # what was not sent yet
                    pipe.close()  # type: ignore[union-attr]
        self._memory.close()

    def _least_busy(self) -> int:
        return self._load.index(min(self._load))

    def _send(self, number: int, job: Reader | Part | Whole, images: int = 0) -> None:
        pipe = self._processes[number].stdin
        assert pipe is not None
        try:
            pickle.dump(job, pipe, pickle.HIGHEST_PROTOCOL)
            pipe.flush()
        except BrokenPipeError as problem:
            raise FewshiftError(_ENDED) from problem
        self._load[number] += images

    def _answer(self, number: int, images: int) -> Any:
        answer = self._receive(number)
        self._load[number] -= images
        if isinstance(answer, Failed):
            raise answer.problem from _InProcess(answer.trace)
        return answer

    def _receive(self, number: int) -> Any:
        pipe = self._processes[number].stdout
        assert pipe is not None
        try:
            return pickle.load(pipe)
        except (EOFError, pickle.UnpicklingError) as problem:
            raise FewshiftError(_ENDED) from problem


def _start(environment: dict[str, str], folder: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", _START, json.dumps(sys.path), folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for this process, which then ends the others
        env=environment,
    )


class _InProcess(Exception):
    """Where in the other process something went wrong."""

    def __str__(self) -> str:
        return f"in a process that reads tasks:\n{self.args[0]}"


def _floats(images: Sequence[Sequence[int]], size: int) -> int:
    return sum(map(len, images)) * 3 * size * size


def _images(plan: TaskPlan) -> int:
    return sum(map(len, (*plan.support, *plan.query)))


_lock = threading.Lock()
_resting: list[Processes] = []  # one group at most


@contextmanager
def processes(count: int) -> Iterator[Processes]:
    """A group of processes, for the time being; kept afterwards if all that was submitted was answered."""
    with _lock:
        found = _resting.pop() if _resting else None
    if found is not None and found.owner != os.getpid():
        found = None  # of the process that this one was forked from
    elif found is not None and (found.count != count or not found.alive()):
        found.end()
        found = None
    group = found or Processes(count)
    try:
        yield group
    except BaseException:
        group.end()
        raise
    with _lock:
        kept = not _resting
        if kept:
            _resting.append(group)
    if not kept:
        group.end()


@atexit.register
def end_resting() -> None:
    """Stop the processes that wait for work."""
    with _lock:
        groups = [group for group in _resting if group.owner == os.getpid()]
        _resting.clear()
    for group in groups:
        group.end()
