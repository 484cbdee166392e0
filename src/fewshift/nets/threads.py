"""How many CPU threads a piece of work deserves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

# On two cores a step of 0.3 GFLOP takes two thirds of the time on one thread, one of 1.6 GFLOP the same time.
ONE_THREAD_BELOW = 1.5e9  # floating-point operations


@contextmanager
def suited_threads(operations: float, device: torch.device) -> Iterator[None]:
    """One thread while the work is too small to share; as many as before otherwise, and afterwards."""
    before = torch.get_num_threads()
    if device.type != "cpu" or before == 1 or operations >= ONE_THREAD_BELOW:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
