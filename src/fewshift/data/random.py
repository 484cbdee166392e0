"""Random numbers that depend on nothing but a task's address.

NumPy promises that the raw output of its bit generators never changes, and promises nothing of the kind for
the methods of `Generator`. So the bits come from NumPy (Philox, keyed by a hash of the address) and all that
is made of them is made here, with exact integer and IEEE arithmetic only.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fewshift.types import Address

_WORDS = 1 << 64
_LAST_WORD = np.uint64(_WORDS - 1)
_ONE = np.uint64(1)


class Stream:
    """A sequence of uniform 64-bit words and the draws made of them. Moves on with every draw."""

    def __init__(self, bits: np.random.BitGenerator) -> None:
        self._bits = bits

    def below(self, bound: int) -> int:
        """A uniform integer in [0, bound)."""
        if not 0 < bound <= _WORDS:
            raise ValueError(f"cannot draw an integer below {bound}")
        fair = _WORDS - _WORDS % bound  # words from here up would make small values more likely
        while True:
            word = int(self._bits.random_raw(1)[0])
            if word < fair:
                return word % bound

    def below_each(self, bounds: NDArray[np.uint64]) -> NDArray[np.uint64]:  # (n,) -> (n,)
        """A uniform integer below each bound: a word for each, then new words for the unfair ones."""
        if not bounds.all():
            raise ValueError("cannot draw an integer below 0")
        words = self._bits.random_raw(len(bounds))
        unfair = (_LAST_WORD % bounds + _ONE) % bounds  # how many words at the top are
        drawn = words % bounds
        for place in np.flatnonzero(words > _LAST_WORD - unfair):
            drawn[place] = self.below(int(bounds[place]))
        return drawn

    def uniforms(self, count: int) -> list[float]:
        """Uniform numbers in [0, 1), multiples of 2^-53."""
        words = self._bits.random_raw(count) >> np.uint64(11)
        values: list[float] = (words.astype(np.float64) * 2.0**-53).tolist()
        return values

    def sample(self, population: int, count: int) -> list[int]:
        """Distinct integers in [0, population), in uniform random order."""
        return self.sample_each([population], [count])[0]

    def sample_each(self, populations: Sequence[int], counts: Sequence[int]) -> list[list[int]]:
        """Distinct integers out of each population. The cost follows the counts, not the populations."""
        for population, count in zip(populations, counts, strict=True):
            if not 0 <= count <= population:
                raise ValueError(f"cannot take {count} distinct integers below {population}")
        ends = np.cumsum(counts, dtype=np.int64)
        steps = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - counts, counts)
        left = np.repeat(np.asarray(populations, dtype=np.int64), counts) - steps
        places: list[int] = (steps + self.below_each(left.astype(np.uint64)).astype(np.int64)).tolist()
        return [_front(places[end - n : end]) for end, n in zip(ends.tolist(), counts, strict=True)]


def _front(places: list[int]) -> list[int]:
    """The front of a range after the first steps of a Fisher-Yates shuffle: i swaps with `places[i]`."""
    if len(set(places)) == len(places) <= min(places, default=0):
        return places  # nothing was moved twice: the usual case in a large class
    moved: dict[int, int] = {}
    front = []
    for here, there in enumerate(places):
        front.append(moved.get(there, there))
        moved[there] = moved.get(here, here)
    return front


def stream_of(address: Address) -> Stream:
    """The random numbers of the task at this address, and of no other."""
    return keyed_stream("task", address.seed, address.domain, address.split, address.index)


def keyed_stream(*key: str | int) -> Stream:
    """The random numbers that belong to this key, on every machine."""
    digest = hashlib.sha256(json.dumps(key, separators=(",", ":")).encode()).digest()
    words = np.frombuffer(digest[:16], dtype="<u8").astype(np.uint64)
    return Stream(np.random.Philox(key=words))
