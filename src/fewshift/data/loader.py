"""Reading ahead: tasks equal to the serial ones, in the same order, while the consumer works.

Tasks that come from files are read by processes, which write them into shared memory: threads would wait for
the interpreter's lock a few hundred times per task. All others are read by threads, since their
sources may not be made for several processes.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, TypeAlias

import torch

from fewshift.data.cache import CachedSource
from fewshift.data.episodes import EpisodeReader
from fewshift.data.folder import FolderSource
from fewshift.data.plan import TaskPlan
from fewshift.data.reading_processes import CannotStart, processes
from fewshift.data.records import RecordSource
from fewshift.errors import FewshiftError
from fewshift.types import Episode

Read: TypeAlias = Callable[[TaskPlan], Episode]
Submit: TypeAlias = Callable[[TaskPlan], Callable[[], Episode]]
FILES = (RecordSource, CachedSource, FolderSource)  # sources that are quickly sent and opened again


def prefetch(
    read: Read,
    plans: Iterable[TaskPlan],
    *,
    workers: int = 2,
    kind: Literal["threads", "processes"] | None = None,
) -> Iterator[Episode]:
    """The tasks of these plans in their order, read by `workers` at once; 0 reads them one by one, here.

    At most `workers` + 1 tasks are being read or wait, besides the one the consumer has: a large task of 84
    pixels takes 80 MiB, and of large ones processes keep fewer. Closing the iterator, Ctrl-C and errors stop
    all workers. Without a `kind`, tasks from files are read by processes (until those have started, here),
    all others by threads.
    """
    if workers < 0:
        raise FewshiftError(f"{workers} workers: give 0 or more")
    if workers == 0:
        return map(read, plans)
    if isinstance(read, EpisodeReader) and (kind or _usual_kind(read)) == "processes" and os.name == "posix":
        return _processes(read, iter(plans), workers, wait=kind is not None)
    return _threads(read, iter(plans), workers)


def _usual_kind(read: EpisodeReader) -> Literal["threads", "processes"]:
    from_files = all(type(domain.source) in FILES for domain in read.domains.values())
    return "processes" if from_files else "threads"


def _threads(read: Read, plans: Iterator[TaskPlan], workers: int) -> Iterator[Episode]:
    try:
        # One thread each inside torch: otherwise the workers would fight over the cores.
        with ThreadPoolExecutor(workers, "fewshift-read", torch.set_num_threads, (1,)) as pool:
            try:
                yield from _in_order(lambda plan: pool.submit(read, plan).result, plans, workers + 1)
            finally:
                pool.shutdown(wait=True, cancel_futures=True)
    finally:
        # threads that are begun later inherit the last value that was set
        torch.set_num_threads(torch.get_num_threads())


def _processes(read: EpisodeReader, plans: Iterator[TaskPlan], workers: int, wait: bool) -> Iterator[Episode]:
    try:
        with processes(workers) as group:
            while not (wait or group.ready()):
                try:
                    plan = next(plans)
                except StopIteration:
                    return
                yield group.read_here(read, plan)
            group.use(read)
            yield from _in_order(group.submit, plans, workers + 1, group.room)
    except CannotStart:  # or not with this reader
        yield from _threads(read, plans, workers)


def _in_order(
    submit: Submit, plans: Iterator[TaskPlan], ahead: int, room: Callable[[], bool] | None = None
) -> Iterator[Episode]:
    waiting: deque[Callable[[], Episode]] = deque()
    more = True
    while True:
        while more and len(waiting) < ahead and (not waiting or room is None or room()):
            more = _submit_next(submit, plans, waiting)
        if not waiting:
            return
        done = waiting.popleft()()
        if more and (not waiting or room is None):  # else later, when the consumer's last task is gone
            more = _submit_next(submit, plans, waiting)
        yield done
        del done  # the consumer may have dropped it, and the next one takes a while


def _submit_next(submit: Submit, plans: Iterator[TaskPlan], waiting: deque[Callable[[], Episode]]) -> bool:
    """Whether there was a plan. A plan that fails waits for its turn, as it would when read one by one."""
    try:
        plan = next(plans)
    except StopIteration:
        return False
    except Exception as problem:
        failed = problem  # the name above is gone when this is called

        def fail() -> Episode:
            raise failed

        waiting.append(fail)
        return False
    waiting.append(submit(plan))
    return True
