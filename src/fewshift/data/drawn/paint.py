"""What all drawings share: a canvas twice as large as the picture, colours, light and grain."""

from __future__ import annotations

import colorsys
import math
from collections.abc import Iterable
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from fewshift.data.domain import Pixels
from fewshift.data.drawn.dice import Dice

SIDE = 64  # pixels of a finished picture
CANVAS = 2 * SIDE  # drawn twice as large, then halved: smooth edges
Colour: TypeAlias = tuple[int, int, int]
Point: TypeAlias = tuple[float, float]


def colour(hue: float, saturation: float, value: float) -> Colour:
    """An RGB colour from hue (any number, 1 is once around), saturation and value (cut to 0..1)."""
    red, green, blue = colorsys.hsv_to_rgb(hue % 1, min(max(saturation, 0), 1), min(max(value, 0), 1))
    return int(red * 255 + 0.5), int(green * 255 + 0.5), int(blue * 255 + 0.5)


def canvas(background: Colour) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    """A sheet and its pencil."""
    sheet = Image.new("RGB", (CANVAS, CANVAS), background)
    return sheet, ImageDraw.Draw(sheet)


def gradient(top: Colour, bottom: Colour) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    """A sheet that goes from one colour to another, and its pencil."""
    strip = Image.new("RGB", (1, 2), top)
    strip.putpixel((0, 1), bottom)
    sheet = strip.resize((CANVAS, CANVAS), Image.Resampling.BILINEAR)
    return sheet, ImageDraw.Draw(sheet)


def turned(points: Iterable[Point], centre: Point, angle: float, scale: float = 1.0) -> list[Point]:
    """Points turned around the origin and enlarged, then moved to `centre`."""
    cos, sin = math.cos(angle) * scale, math.sin(angle) * scale
    return [(centre[0] + x * cos - y * sin, centre[1] + x * sin + y * cos) for x, y in points]


def ellipse(centre: Point, across: float, down: float, angle: float = 0.0, corners: int = 20) -> list[Point]:
    """The outline of an ellipse with these half axes."""
    ring = _ring(corners)
    return turned(((x * across, y * down) for x, y in ring), centre, angle)


@lru_cache(maxsize=64)
def _ring(corners: int) -> tuple[Point, ...]:
    steps = (2 * math.pi * k / corners for k in range(corners))
    return tuple((math.cos(step), math.sin(step)) for step in steps)


def finished(sheet: Image.Image, dice: Dice, light: float = 0.15, grain: float = 0.04) -> Pixels:
    """Halve the sheet, let light fall from one side, add grain; both as shares of the full scale."""
    values = np.asarray(sheet.reduce(2), np.float32)
    angle = dice.between(0, 2 * math.pi)
    slope = _ramp() * np.float32(math.cos(angle)) + _ramp().T * np.float32(math.sin(angle))
    shade = 1 + np.float32(light) * slope + np.float32(dice.about(0, light / 2))
    noise = dice.grain(SIDE, SIDE) * np.float32(grain * 255 * 2)
    return as_levels(values * shade[..., None] + noise[..., None])


def as_levels(values: NDArray[np.float32]) -> Pixels:
    """Cut to 0..255 and round."""
    return np.rint(np.clip(values, 0, 255)).astype(np.uint8)


@lru_cache(maxsize=1)
def _ramp() -> NDArray[np.float32]:  # (SIDE, SIDE)
    line = np.linspace(-1, 1, SIDE, dtype=np.float32)
    return np.broadcast_to(line, (SIDE, SIDE))
