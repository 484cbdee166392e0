"""Random numbers for drawings, the same for a key on every machine and with every version of NumPy."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")


class Dice:
    """Draws for one key. Made of a bit generator's raw output alone, which NumPy promises never to change."""

    def __init__(self, *key: str | int) -> None:
        digest = hashlib.sha256(json.dumps(key).encode()).digest()
        self._bits = np.random.Philox(key=np.frombuffer(digest[:16], "<u8").astype(np.uint64))
        self._ready: list[float] = []

    def share(self) -> float:
        """Uniform in [0, 1)."""
        if not self._ready:
            words = self._bits.random_raw(32) >> np.uint64(11)
            self._ready = (words.astype(np.float64) * 2.0**-53).tolist()
        return self._ready.pop()

    def between(self, low: float, high: float) -> float:
        """Uniform in [low, high)."""
        return low + (high - low) * self.share()

    def about(self, middle: float, spread: float) -> float:
        """Bell-shaped around `middle`, never further from it than twice the spread."""
        return middle + spread * (self.share() + self.share() + self.share() + self.share() - 2)

    def whole(self, low: int, high: int) -> int:
        """A whole number from low to high, both possible."""
        return low + int(self.share() * (high - low + 1))

    def one_of(self, things: Sequence[T]) -> T:
        """One of these."""
        return things[int(self.share() * len(things))]

    def chance(self, probability: float) -> bool:
        """True this often."""
        return self.share() < probability

    def angle(self, spread: float) -> float:
        """An angle in radians, at most `spread` degrees either way."""
        return math.radians(self.between(-spread, spread))

    def grain(self, height: int, width: int) -> NDArray[np.float32]:  # (height, width)
        """Independent noise between -1 and 1, bell-shaped."""
        count = height * width
        levels = self._bits.random_raw(-(-count // 2)).astype("<u8").view(np.uint8)[: 4 * count]
        grain: NDArray[np.float32] = levels.reshape(4, height, width).sum(axis=0, dtype=np.float32)
        grain /= np.float32(510)
        grain -= np.float32(1)
        return grain
