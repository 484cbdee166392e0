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
from itertools import accumulate
from multiprocessing.connection import wait
from typing import IO, cast

import torch

from fewshift.data.episodes import EpisodeReader
from fewshift.data.plan import TaskPlan
from fewshift.data.reading_worker import Failed, Part, Place
from fewshift.data.resize import Floats
from fewshift.data.shared_memory import SharedMemory
from fewshift.errors import FewshiftError
from fewshift.types import Episode

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
    """There are no processes to read with, or none that this reader can be given to."""


class Processes:
    """A group of them, for one reading at a time."""

    def __init__(self, count: int) -> None:
        self.owner = os.getpid()
        self._memory = SharedMemory()
        if not self._memory.files:
            raise CannotStart("no folder for temporary files can be written: read with threads")
        self._load = [0] * count  # images that each has to read
        self._started = False
        self._processes: list[subprocess.Popen[bytes]] = []
        try:
            for _ in range(count):
                self._processes.append(_start([file.descriptor for file in self._memory.files]))
        except (OSError, ValueError) as problem:  # a ValueError where Windows passes no descriptors
            self.end()
            raise CannotStart(f"{sys.executable}: {problem}: read with threads") from problem
        self._inputs = [cast(IO[bytes], process.stdin) for process in self._processes]
        self._outputs = [cast(IO[bytes], process.stdout) for process in self._processes]

    @property
    def count(self) -> int:
        """How many."""
        return len(self._processes)

    def alive(self) -> bool:
        """Whether none has ended."""
        return all(process.poll() is None for process in self._processes)

    def ready(self) -> bool:
        """Whether all have started."""
        return self._started or len(wait(self._outputs, timeout=0)) == self.count  # type: ignore[arg-type]

    def use(self, read: EpisodeReader) -> None:
        """Read with this from now on."""
        try:
            job = pickle.dumps(read)
            if not self._started:
                for number in range(self.count):
                    self._receive(number)
        except Exception as problem:
            raise CannotStart(f"tasks are not read by processes ({problem}): read with threads") from problem
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
        (file, first, support), (query_file, query_first, query) = self._lend(read, plan)
        image = 3 * read.rule.size**2  # floats
        sent: list[tuple[int, int]] = []  # who, how many images
        for part in divide(plan, min(self.count, (len(support) + len(query)) // WORTH_A_PART)):
            place = Place(file, first, _images(part.support))
            query_place = Place(query_file, query_first, _images(part.query))
            first += place.images * image
            query_first += query_place.images * image
            number = self._load.index(min(self._load))
            self._send(number, Part(part, place, query_place))
            sent.append((number, place.images + query_place.images))
            self._load[number] += sent[-1][1]

        def finish() -> Episode:
            for number, images in sent:
                self._receive(number)
                self._load[number] -= images
            return read.episode(plan, torch.from_numpy(support), torch.from_numpy(query))

        return finish

    def read_here(self, read: EpisodeReader, plan: TaskPlan) -> Episode:
        """The task, read by this process into the memory that the others will use."""
        (_, _, support), (_, _, query) = self._lend(read, plan)
        read.read_into(support, query, plan)
        return read.episode(plan, torch.from_numpy(support), torch.from_numpy(query))

    def _lend(self, read: EpisodeReader, plan: TaskPlan) -> list[tuple[int, int, Floats]]:
        """Memory for the support and for the query: the file, where in it, and the array there."""
        size = read.rule.size
        lent = [self._memory.lend(_images(images) * 3 * size * size) for images in (plan.support, plan.query)]
        return [(file, first, floats.reshape(-1, 3, size, size)) for file, first, floats in lent]

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

    def _send(self, number: int, job: bytes | Part) -> None:
        try:
            pickle.dump(job, self._inputs[number], pickle.HIGHEST_PROTOCOL)
            self._inputs[number].flush()
        except BrokenPipeError as problem:
            raise FewshiftError(_ENDED) from problem

    def _receive(self, number: int) -> None:
        """Wait for the process's next answer."""
        try:
            answer = pickle.load(self._outputs[number])
        except (EOFError, pickle.UnpicklingError) as problem:
            raise FewshiftError(_ENDED) from problem
        if isinstance(answer, Failed):
            raise answer.problem from _InProcess(answer.trace)


def _start(memory: Sequence[int]) -> subprocess.Popen[bytes]:
    one_core = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return subprocess.Popen(
        [sys.executable, "-c", _START, json.dumps(sys.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=memory,
        start_new_session=True,  # Ctrl-C is for this process, which then ends the others
        env={**os.environ, **one_core},
    )


class _InProcess(Exception):
    """Where in the other process something went wrong."""

    def __str__(self) -> str:
        return f"in a process that reads tasks:\n{self.args[0]}"


def _images(images: Sequence[Sequence[int]]) -> int:
    return sum(map(len, images))


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
