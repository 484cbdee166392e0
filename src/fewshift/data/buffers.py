"""Memory for tasks that is used again and again.

A task takes tens of megabytes and lives for a moment. Asking the system for fresh pages each time costs more
than filling them with pixels; so the memory of a task that nobody holds any more serves the next one.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import threading
import weakref
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from torch import Tensor

STEP = 4 * 2**20  # floats: 16 MiB; buffers come in multiples of it, so that one fits many tasks
KEPT = 160 * 2**20  # bytes: memory is kept for later only while all of it, in use and waiting, is less

_lock = threading.RLock()  # a buffer may come back at any moment, even while this thread holds the lock
_free: list[NDArray[np.float32]] = []
_lent: dict[int, int] = {}  # address -> bytes


def lease(*shape: int) -> tuple[NDArray[np.float32], Tensor]:
    """Uninitialised memory as an array to write and the tensor to give away.

    The memory is taken back when the tensor and everything that shares its storage is gone; the array must
    not be kept longer than that.
    """
    import torch  # here, so that processes that only read images do without

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
    found = None
    with _lock:
        for place, waiting in enumerate(_free):
            if size <= len(waiting) <= size + 2 * STEP:
                found = _free.pop(place)
                break
        while _free and _all_bytes() + size * 4 > KEPT:
            _free.pop(0)
    if found is None:
        found = _fresh(-(-size // STEP) * STEP)
    _lent[found.ctypes.data] = found.nbytes
    return found


def _give_back(owner: NDArray[np.float32]) -> None:
    with _lock:
        del _lent[owner.ctypes.data]
        if _all_bytes() + owner.nbytes <= KEPT:
            _free.append(owner)


def _all_bytes() -> int:
    """In use and waiting. Added up each time: buffers that come back meanwhile would upset a running sum."""
    return sum(list(_lent.values())) + sum(waiting.nbytes for waiting in list(_free))


def _fresh(size: int) -> NDArray[np.float32]:
    """Memory straight from the system, which has it back as soon as it is let go; in huge pages if it can."""
    if not hasattr(mmap, "MAP_PRIVATE"):
        return np.empty(size, np.float32)
    pages = mmap.mmap(-1, size * 4, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without them
            pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, np.float32)
