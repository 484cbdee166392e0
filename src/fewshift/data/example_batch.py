"""Images and labels of many records at once, for the layout that practically all files have.

TensorFlow and this package write the image first and the label last. Records so laid out are read here, all
in a few array operations; any other is left to `decode_example`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Places: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]

_LONGEST = 5  # bytes of a length or a class id: 2^35 is beyond both


@dataclass(frozen=True)
class Examples:
    """Where the images of many records lie and how they are labelled (-1: not the ordinary layout)."""

    labels: Places  # (n,)
    image_starts: Places  # (n,)
    image_stops: Places  # (n,)


def ordinary_examples(data: NDArray[np.uint8], starts: Places, stops: Places) -> Examples:
    """The examples in data[start:stop], for every pair."""
    if not len(data):
        return Examples(np.full(len(starts), -1, np.int64), starts, starts)
    fine, at, end = _enter(data, starts, 0x0A)  # Example.features
    fine &= end == stops
    ok, at, image_stops = _enter(data, at, 0x0A)  # the map entry of the image
    fine &= ok & _equal(data, at, b"\x0a\x05image")
    for tag in (0x12, 0x0A, 0x0A):  # Feature, its bytes_list, the list's one value
        ok, at, end = _enter(data, at + 7 if tag == 0x12 else at, tag)
        fine &= ok & (end == image_stops)
    image_starts = at
    ok, at, end = _enter(data, image_stops, 0x0A)  # the map entry of the label
    fine &= ok & (end == stops) & _equal(data, at, b"\x0a\x05label")
    for tag in (0x12, 0x1A, 0x0A):  # Feature, its int64_list, the packed values
        ok, at, end = _enter(data, at + 7 if tag == 0x12 else at, tag)
        fine &= ok & (end == stops)
    ok, label, at = _varints(data, at)
    fine &= ok & (at == stops)
    return Examples(np.where(fine, label, -1), image_starts, image_stops)


def _enter(data: NDArray[np.uint8], at: Places, tag: int) -> tuple[Flags, Places, Places]:
    """(is this field there, where its content starts, where it stops)."""
    ok, length, start = _varints(data, at + 1)
    return ok & (_bytes(data, at) == tag), start, start + length


def _varints(data: NDArray[np.uint8], at: Places) -> tuple[Flags, Places, Places]:
    """(is it a short number, its value, the place after it) at each place."""
    value = np.zeros(len(at), np.int64)
    after = at.copy()
    more = np.ones(len(at), np.bool_)
    for place in range(_LONGEST):
        byte = _bytes(data, at + place).astype(np.int64)
        value += np.where(more, (byte & 0x7F) << (7 * place), 0)
        after += more
        more &= byte >= 0x80
        if not more.any():
            break
    return ~more, value, after


def _equal(data: NDArray[np.uint8], at: Places, expected: bytes) -> Flags:
    found = _bytes(data, at[:, None] + np.arange(len(expected)))
    result: Flags = (found == np.frombuffer(expected, np.uint8)).all(axis=1)
    return result


def _bytes(data: NDArray[np.uint8], at: Places) -> NDArray[np.uint8]:
    """Places beyond the end give some byte of the buffer: the ends that are compared cannot agree then."""
    return np.take(data, at, mode="clip")
