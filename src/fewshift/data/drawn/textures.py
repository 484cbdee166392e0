"""Woven and rippled surfaces. A class is a pair of waves and two colours; their phase is free."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fewshift.data.domain import Pixels
from fewshift.data.drawn.dice import Dice
from fewshift.data.drawn.paint import SIDE, as_levels, colour


@dataclass(frozen=True)
class Texture:
    """Two waves, how they combine, and the colours between which they move."""

    angles: tuple[float, float]
    waves: tuple[float, float]  # a picture's width
    bend: float
    mix: int
    sharp: float
    hues: tuple[float, float]


def design(number: int, dice: Dice) -> Texture:
    """The surface of class `number`."""
    first = math.pi * (number * 0.382 % 1)
    hue = number * 0.618
    return Texture(
        angles=(first, first + dice.between(0.5, 2.6)),
        waves=(dice.between(3, 11), dice.between(2, 9)),
        bend=dice.one_of((0.0, 0.0, 0.8, 1.8)),
        mix=number % 4,
        sharp=dice.one_of((0.0, 2.0, 5.0)),
        hues=(hue, hue + dice.between(0.08, 0.5)),
    )


def draw(texture: Texture, dice: Dice) -> Pixels:
    """A patch of the surface."""
    stretch, turn = dice.between(0.85, 1.18), dice.angle(9)
    first, second = (
        _wave(angle + turn, count * stretch, texture.bend, dice)
        for angle, count in zip(texture.angles, texture.waves, strict=True)
    )
    mixes = (first, (first + second) / np.float32(2), first * second, np.maximum(first, second))
    height: NDArray[np.float32] = mixes[texture.mix]
    if texture.sharp:
        height = np.tanh(height * np.float32(texture.sharp))
    share = (height + 1) / 2 + dice.grain(SIDE, SIDE) * np.float32(0.35)
    value = dice.between(0.6, 1.0)
    ends = [
        colour(hue + dice.about(0, 0.13), dice.between(0.2, 0.75), bright * value)
        for hue, bright in zip(texture.hues, (0.45, 1.0), strict=True)
    ]
    low, high = np.array(ends, np.float32)
    return as_levels(low + (high - low) * share[..., None])


def _wave(angle: float, count: float, bend: float, dice: Dice) -> NDArray[np.float32]:
    x, y = _plane()
    along = x * np.float32(math.cos(angle)) + y * np.float32(math.sin(angle))
    phase = along * np.float32(2 * math.pi * count) + np.float32(dice.between(0, 2 * math.pi))
    if bend:
        across = y * np.float32(math.cos(angle)) - x * np.float32(math.sin(angle))
        phase += np.float32(bend) * np.sin(across * np.float32(9) + np.float32(dice.between(0, 6.3)))
    wave: NDArray[np.float32] = np.sin(phase)
    return wave


@lru_cache(maxsize=1)
def _plane() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    y, x = np.mgrid[0:SIDE, 0:SIDE].astype(np.float32) / np.float32(SIDE)
    return x, y
