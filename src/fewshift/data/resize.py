"""The protocol's resize: bilinear, aligned corners, no antialias, float output.

Written in single additions and multiplications, each of which IEEE 754 defines to the last bit, because a
library's fused kernel gives other last bits for another batch size, channel count or number of threads
(PyTorch's does). So an image has one result, on every machine and whatever else is in its batch.
"""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from fewshift.data.domain import Pixels

Floats: TypeAlias = NDArray[np.float32]


def resize_aligned(planes: Pixels, size: int) -> Floats:  # (p, h, w) uint8 -> (p, size, size)
    """Grey levels at source row i * (h - 1) / (size - 1) and column j * (w - 1) / (size - 1), unrounded.

    The result is scratch memory of the calling thread: use it before the next call.
    """
    count, height, width = planes.shape
    if (height, width) == (size, size):
        same = _scratch("same", (count, size, size))
        same[...] = planes
        return same
    down, across = _along(height, size), _along(width, size)
    if down.needed is not None:
        planes = planes.take(down.needed, axis=1)
    if across.needed is not None:
        planes = planes.take(across.needed, axis=2)
    count, height, width = planes.shape
    # Both passes gather whole rows, which is quick; so the columns are rows for a while.
    columns = _scratch("columns", (width, count * height))
    columns[...] = planes.reshape(count * height, width).T
    columns = _gather(columns[None], across, "across")[0]  # (size, p * h)
    rows = _scratch("rows", (count * height, size))
    torch.from_numpy(rows).copy_(torch.from_numpy(columns).t())  # several times quicker than numpy's own
    return _gather(rows.reshape(count, height, size), down, "down")


@dataclass(frozen=True, slots=True)
class _Along:
    """Where the output rows lie between the source rows."""

    needed: NDArray[np.intp] | None  # of a long axis, the rows that are looked at; None: all
    upper: NDArray[np.intp]  # (size,) the row above, among the needed ones
    share: Floats  # (size, 1) how far towards the next row


@lru_cache(maxsize=1024)
def _along(length: int, size: int) -> _Along:
    place = np.arange(size) * (length - 1) / max(size - 1, 1)
    upper = np.floor(place).astype(np.intp)
    share = (place - upper).astype(np.float32)[:, None]
    if length <= 2 * size:
        return _Along(None, upper, share)
    needed = np.stack([upper, np.minimum(upper + 1, length - 1)], axis=1).ravel()
    return _Along(needed, 2 * np.arange(size), share)


def _gather(values: Floats, along: _Along, name: str) -> Floats:  # (n, h, w) -> (n, size, w)
    count, _, width = values.shape
    steps = _scratch(f"{name} steps", values.shape)
    np.subtract(values[:, 1:], values[:, :-1], out=steps[:, :-1])
    steps[:, -1] = 0
    shape = (count, len(along.upper), width)
    resized = values.take(along.upper, 1, _scratch(name, shape), "clip")
    added = steps.take(along.upper, 1, _scratch(f"{name} added", shape), "clip")
    added *= along.share
    resized += added
    return resized


_local = threading.local()


def _scratch(name: str, shape: tuple[int, ...]) -> Floats:
    """Memory of this thread that the next call reuses: fresh pages would cost more than the arithmetic."""
    size = math.prod(shape)
    flat: Floats | None = getattr(_local, name, None)
    if flat is None or len(flat) < size:
        flat = np.empty(size, np.float32)
        setattr(_local, name, flat)
    return flat[:size].reshape(shape)
