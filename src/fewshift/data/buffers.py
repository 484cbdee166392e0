"""Memory for tasks, used again.

A task takes tens of megabytes and lives for a moment. Asking the system for fresh pages each time costs more
than filling them with pixels; so the memory of a task that nobody holds any more serves the next one.
"""

from __future__ import annotations

import math
import weakref
from collections import deque

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

STEP = 4 * 2**20  # floats: 16 MiB; buffers come in multiples of it, so that one fits many tasks
KEPT = 64 * 2**20  # bytes at most that wait to be used again

_free: deque[NDArray[np.float32]] = deque()  # its own methods are atomic, so no lock is needed


def lease(*shape: int) -> tuple[NDArray[np.float32], Tensor]:
    """Uninitialised memory as an array to write and the tensor to give away.

    The memory is taken back when the tensor and everything that shares its storage is gone; the array must
    not be kept longer than that.
    """
    size = math.prod(shape)
    if size < STEP // 4:
        small = np.empty(shape, np.float32)
        return small, torch.from_numpy(small)
    owner = _take(size)
    array = owner[:size].reshape(shape)
    tensor = torch.from_numpy(array)  # holds this very array until its storage goes
    weakref.finalize(array, _give_back, owner).atexit = False
    return owner[:size].reshape(shape), tensor


def _take(size: int) -> NDArray[np.float32]:
    for _ in range(len(_free)):
        owner = _next_free()
        if owner is None:
            break
        if size <= len(owner) <= size + 2 * STEP:
            return owner
        _free.append(owner)
    return np.empty(-(-size // STEP) * STEP, np.float32)


def _give_back(owner: NDArray[np.float32]) -> None:
    _free.append(owner)
    while sum(waiting.nbytes for waiting in _free.copy()) > KEPT and _next_free() is not None:
        pass


def _next_free() -> NDArray[np.float32] | None:
    try:
        return _free.popleft()
    except IndexError:  # another thread was quicker
        return None
