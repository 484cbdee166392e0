"""How many CPU threads a piece of work deserves."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

# On two cores a step of 0.3 GFLOP takes two thirds of the time on one thread, one of 1.6 GFLOP the same time.
ONE_THREAD_BELOW = 1.5e9  # floating-point operations

T = TypeVar("T")

_switching = threading.Lock()
_this_thread = threading.local()


@contextmanager
def suited_threads(operations: float, device: torch.device) -> Iterator[None]:
    """One thread while the work is too small to share; as many as before otherwise, and afterwards.

    For the calling thread alone: other threads may work at the same time and keep their number.
    """
    with _switching:
        before = _own_number()
        small = device.type == "cpu" and before > 1 and operations < ONE_THREAD_BELOW
        if small:
            _set_here(1, elsewhere=before)
    try:
        yield
    finally:
        if small:
            torch.set_num_threads(before)


def _own_number() -> int:
    """The caller's number, put right where its first use of torch fell into another thread's switch.

    torch gives a thread the number of that moment, for good: without this, a thread that began while
    another was being set to one would compute on one for good.
    """
    own = torch.get_num_threads()
    if own == 1 and not hasattr(_this_thread, "asked"):
        own = _in_a_new_thread(torch.get_num_threads)
        torch.set_num_threads(own)
    _this_thread.asked = True
    return own


def _set_here(count: int, elsewhere: int) -> None:
    """torch sets the caller's number and the one with which threads begin, and keep: that is put back."""
    torch.set_num_threads(count)
    _in_a_new_thread(lambda: torch.set_num_threads(elsewhere))


def _in_a_new_thread(work: Callable[[], T]) -> T:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()
