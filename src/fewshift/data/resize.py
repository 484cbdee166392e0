"""The protocol's resize: bilinear, aligned corners, no antialias, float output.

Written in single additions and multiplications, each of which IEEE 754 defines to the last bit, because a
library's fused kernel gives other last bits for another batch size, channel count or number of threads
(PyTorch's does). So an image has one result, on every machine and whatever else is in its batch.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, groupby
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from fewshift.data.domain import Pixels

Floats: TypeAlias = NDArray[np.float32]
IN_CACHE = 24  # planes of 84 x 84 floats that stay in the processor's cache from one pass to the next


def resize_aligned(
    planes: Pixels,  # (p, h, w)
    size: int,
    scale: float = 1.0,
    shift: float = 0.0,
    out: Floats | None = None,  # (p, size, size), contiguous
) -> Floats:  # (p, size, size)
    """v * scale - shift at row i * (h - 1) / (size - 1) and column j * (w - 1) / (size - 1), unrounded.

    Without `out` the result is scratch memory of the calling thread: use it before the next call.
    """
    if out is None:
        out = _scratch("out", (len(planes), size, size))
    if planes.shape[1:] == (size, size):
        for first in range(0, len(planes), IN_CACHE):
            _scaled(planes[first : first + IN_CACHE], scale, shift, out[first : first + IN_CACHE])
        return out
    down, across = _along(planes.shape[1], size), _along(planes.shape[2], size)
    if down.needed is not None:
        planes = planes.take(down.needed, axis=1)
    if across.needed is not None:
        planes = planes.take(across.needed, axis=2)
    count, height, width = planes.shape
    rows = _scratch("rows", (count, height, size))
    _across(planes.reshape(-1, width), across, scale, shift, rows.reshape(-1, size))
    return _gather(rows, down, out)


def resize_mixed(
    stacks: Sequence[Pixels],  # (p, h, w) each
    size: int,
    scale: float = 1.0,
    shift: float = 0.0,
) -> Floats:  # (all p, size, size), scratch memory of the calling thread
    """`resize_aligned` of planes of many shapes, to the bit, for few planes of each.

    All rows of one width go across together, then all planes of one height go down together. Sides of more
    than twice `size` are not meant to come here.
    """
    by_width = sorted(range(len(stacks)), key=lambda number: stacks[number].shape[2])
    middle = _scratch("middle", (sum(stack.shape[0] * stack.shape[1] for stack in stacks), size))
    tall: dict[int, list[tuple[int, Floats]]] = {}  # height -> stacks, wide enough now
    end = 0
    for width, group in groupby(by_width, key=lambda number: stacks[number].shape[2]):
        numbers, begin = list(group), end
        for number in numbers:
            planes, height, _ = stacks[number].shape
            end += planes * height
            tall.setdefault(height, []).append((number, middle[end - planes * height : end]))
        levels = np.concatenate([stacks[number].reshape(-1, width) for number in numbers])
        _across(levels, _along(width, size), scale, shift, middle[begin:end])
    starts = [0, *accumulate(len(stack) for stack in stacks)]
    out = _scratch("out", (starts[-1], size, size))
    for height, found in tall.items():
        rows = _scratch("rows", (sum(len(part) for _, part in found) // height, height, size))
        np.concatenate([part for _, part in found], out=rows.reshape(-1, size))
        down = _gather(rows, _along(height, size), _scratch("down", (len(rows), size, size)))
        at = 0
        for number, _ in found:
            count = len(stacks[number])
            out[starts[number] : starts[number] + count] = down[at : at + count]
            at += count
    return out


def _across(levels: Pixels, along: _Along, scale: float, shift: float, out: Floats) -> None:
    """(n, w) -> (n, size). Gathering whole rows is quick; so the columns are rows for a while."""
    count, width = levels.shape
    length = count + 16 if count % 128 == 0 else count  # rows that lie 4096 bytes apart share cache lines
    columns = _scratch("columns", (1, width, length))
    _scaled(levels.T, scale, shift, columns[0, :, :count])
    columns[0, :, count:] = 0
    across = _gather(columns, along, _scratch("across", (1, out.shape[1], length)))
    out[...] = across[0, :, :count].T


def _scaled(levels: Pixels, scale: float, shift: float, out: Floats) -> None:
    np.copyto(out, levels)  # a pass of its own: numpy multiplies floats by floats much quicker
    out *= np.float32(scale)
    out -= np.float32(shift)


@dataclass(frozen=True, slots=True)
class _Along:
    """Where the output rows lie between the source rows."""

    needed: NDArray[np.intp] | None  # of a long axis, the rows that are looked at; None: all
    upper: NDArray[np.intp]  # (size,) the row above, among the needed ones
    share: Floats  # (size, 1) how far towards the next row
    square: Floats  # (size, size) the same in every column: quicker to multiply with than one column is


@lru_cache(maxsize=256)
def _along(length: int, size: int) -> _Along:
    place = np.arange(size) * (length - 1) / max(size - 1, 1)
    upper = np.floor(place).astype(np.intp)
    share = (place - upper).astype(np.float32)[:, None]
    square = share.repeat(size, axis=1)
    if length <= 2 * size:
        return _Along(None, upper, share, square)
    needed = np.stack([upper, np.minimum(upper + 1, length - 1)], axis=1).ravel()
    return _Along(needed, 2 * np.arange(size), share, square)


def _gather(values: Floats, along: _Along, out: Floats) -> Floats:  # (n, h, w) -> (n, size, w)
    steps = _scratch("steps", values.shape)
    np.subtract(values[:, 1:], values[:, :-1], out=steps[:, :-1])
    steps[:, -1] = 0
    added = _scratch("added", out.shape)
    values.take(along.upper, 1, out, "clip")
    steps.take(along.upper, 1, added, "clip")
    added *= along.square if out.shape[2] == len(along.square) else along.share
    out += added
    return out


_local = threading.local()


def _scratch(name: str, shape: tuple[int, ...]) -> Floats:
    """Memory of this thread that the next call reuses: fresh pages would cost more than the arithmetic."""
    size = 1
    for length in shape:
        size *= length
    flat: Floats | None = getattr(_local, name, None)
    if flat is None or len(flat) < size:
        flat = np.empty(size, np.float32)
        setattr(_local, name, flat)
    return flat[:size].reshape(shape)
