"""How many CPU threads a piece of work deserves."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

# On two cores a step of 0.3 GFLOP takes two thirds of the time on one thread, one of 1.6 GFLOP the same time.
ONE_THREAD_BELOW = 1.5e9  # floating-point operations

_switching = threading.Lock()


@contextmanager
def suited_threads(operations: float, device: torch.device) -> Iterator[None]:
    """One thread while the work is too small to share; as many as before otherwise, and afterwards.

    For the calling thread alone: other threads may work at the same time and keep their number.
    """
    with _switching:
        before = torch.get_num_threads()
        small = device.type == "cpu" and before > 1 and operations < ONE_THREAD_BELOW
        if small:
            _set_here(1, elsewhere=before)
    try:
        yield
    finally:
        if small:
            torch.set_num_threads(before)


def _set_here(count: int, elsewhere: int) -> None:
    """torch sets the caller's number and the one with which threads begin, and keep: that is put back."""
    torch.set_num_threads(count)
    elsewhere_too = threading.Thread(target=torch.set_num_threads, args=(elsewhere,))
    elsewhere_too.start()
    elsewhere_too.join()
