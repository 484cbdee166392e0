"""How library code says that it is busy, without knowing who watches.

A function that may take more than two seconds takes `track: Track = silent` and wraps its loop in it. The
command line passes bars with rates and time left; tests and scripts pass nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

T = TypeVar("T")


class Track(Protocol):
    """Wraps an iterable so that somebody can watch it."""

    def __call__(self, items: Iterable[T], /, *, label: str, total: int | None = None) -> Iterator[T]:
        """The same items; `label` says what is being done, `total` how many there will be."""
        ...


def silent(items: Iterable[T], /, *, label: str, total: int | None = None) -> Iterator[T]:
    """Shows nothing."""
    return iter(items)
