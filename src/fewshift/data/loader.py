"""Reading ahead: tasks equal to the serial ones, in the same order, while the consumer works.

Threads are the default: decoding, resizing and copying release the interpreter's lock. Processes are for
sources written in plain Python; they start slowly, need a source that can be pickled, and copy every task.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Literal, TypeAlias

import torch

from fewshift.data.plan import TaskPlan
from fewshift.errors import FewshiftError
from fewshift.types import Address, Episode, Labelled, Task

Read: TypeAlias = Callable[[TaskPlan], Episode]
Packed: TypeAlias = tuple[Any, ...]


def prefetch(
    read: Read,
    plans: Iterable[TaskPlan],
    *,
    workers: int = 2,
    ahead: int | None = None,
    kind: Literal["threads", "processes"] = "threads",
) -> Iterator[Episode]:
    """The tasks of these plans in their order, read by `workers` at once; 0 reads them one by one, here.

    At most `ahead` tasks (`workers` + 1 unless given) are being read or wait, besides the one the consumer
    has: a large task of 84 pixels takes 80 MiB. Closing the iterator, Ctrl-C and errors stop all workers.
    """
    if workers < 0 or (ahead is not None and ahead < 1):
        raise FewshiftError(
            f"{workers} workers reading {ahead} tasks ahead: give 0 or more workers and 1 or more tasks"
        )
    if workers == 0:
        return map(read, plans)
    pool = _threads if kind == "threads" else _processes
    return pool(read, iter(plans), workers, workers + 1 if ahead is None else ahead)


def _threads(read: Read, plans: Iterator[TaskPlan], workers: int, ahead: int) -> Iterator[Episode]:
    try:
        # One thread each inside torch: otherwise the workers would fight over the cores.
        with ThreadPoolExecutor(workers, "fewshift-read", torch.set_num_threads, (1,)) as pool:
            yield from _in_order(pool, read, plans, ahead, lambda episode: episode)
    finally:
        torch.set_num_threads(
            torch.get_num_threads()
        )  # for threads begun later, which inherit the last value


def _processes(read: Read, plans: Iterator[TaskPlan], workers: int, ahead: int) -> Iterator[Episode]:
    context = multiprocessing.get_context("spawn")  # a fork would copy the locks of torch's threads
    with ProcessPoolExecutor(workers, context, _begin_worker, (read,)) as pool:
        try:
            yield from _in_order(pool, _read_packed, plans, ahead, _unpack)
        except BrokenProcessPool as problem:
            raise FewshiftError(
                "a process that reads tasks was ended from outside, or could not start (a script needs its "
                "`if __name__ == '__main__':`): use fewer workers if memory ran out, or threads"
            ) from problem


def _in_order(
    pool: Executor,
    work: Callable[[TaskPlan], Any],
    plans: Iterator[TaskPlan],
    ahead: int,
    finish: Callable[[Any], Episode],
) -> Iterator[Episode]:
    waiting: deque[Future[Any]] = deque()
    more = True
    try:
        while True:
            while more and len(waiting) < ahead:
                more = _submit_next(pool, work, plans, waiting)
            if not waiting:
                return
            done = finish(waiting.popleft().result())
            if more:
                more = _submit_next(pool, work, plans, waiting)
            yield done
            del done  # the consumer may have dropped it, and the next one takes a while
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _submit_next(
    pool: Executor, work: Callable[[TaskPlan], Any], plans: Iterator[TaskPlan], waiting: deque[Future[Any]]
) -> bool:
    """Whether there was a plan. A plan that fails waits for its turn, as it would when read one by one."""
    try:
        plan = next(plans)
    except StopIteration:
        return False
    except Exception as problem:
        failed: Future[Any] = Future()
        failed.set_exception(problem)
        waiting.append(failed)
        return False
    waiting.append(pool.submit(work, plan))
    return True


_read_here: Read | None = None  # in a worker process: what it reads tasks with


def _begin_worker(read: Read) -> None:
    global _read_here
    _read_here = read
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the parent ends this one
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: Any) -> None:
    parent.join()
    os._exit(1)  # killed parents cannot end their workers


def _read_packed(plan: TaskPlan) -> Packed:
    assert _read_here is not None
    return _pack(_read_here(plan))


def _pack(episode: Episode) -> Packed:
    """The task as arrays, which go through a pipe: tensors would use shared memory, often a small one."""
    parts = (episode.task.support, episode.query)
    arrays = [array for part in parts for array in (part.images.numpy(), part.labels.numpy())]
    return (*arrays, episode.task.way, episode.task.seen, episode.address, episode.class_ids)


def _unpack(packed: Packed) -> Episode:
    address: Address
    *arrays, way, seen, address, class_ids = packed
    support_images, support_labels, query_images, query_labels = map(torch.from_numpy, arrays)
    task = Task(Labelled(support_images, support_labels), way, seen)
    return Episode(task, Labelled(query_images, query_labels), address, class_ids)
