"""Written characters, white on black. A class is a few strokes; the hand is different every time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from PIL import Image, ImageDraw

from fewshift.data.domain import Pixels
from fewshift.data.drawn.dice import Dice
from fewshift.data.drawn.paint import CANVAS, Point, turned

Stroke: TypeAlias = tuple[Point, ...]  # the four control points of a curve


@dataclass(frozen=True)
class Glyph:
    """Strokes, whose ink lies in [-1, 1]."""

    strokes: tuple[Stroke, ...]


def design(number: int, dice: Dice) -> Glyph:
    """The strokes of class `number`."""
    corners = [(x, y) for x in (-0.8, 0.0, 0.8) for y in (-0.85, 0.0, 0.85)]
    pen = dice.one_of(corners)
    strokes: list[Stroke] = []
    for _ in range(2 + number % 3):
        start = pen if dice.chance(0.55) else dice.one_of(corners)
        used = {corner for a, *_, b in strokes if start in (a, b) for corner in (a, b)}
        end = dice.one_of([corner for corner in corners if corner not in used | {start}])
        bend = 1.1 if dice.chance(0.6) else 0.15
        middle = [
            (
                start[0] + (end[0] - start[0]) * part + dice.between(-bend, bend),
                start[1] + (end[1] - start[1]) * part + dice.between(-bend, bend),
            )
            for part in (1 / 3, 2 / 3)
        ]
        strokes.append((start, middle[0], middle[1], end))
        pen = end
    return Glyph(_centred(strokes))


def _centred(strokes: list[Stroke]) -> tuple[Stroke, ...]:
    """The strokes moved and enlarged until their ink just fits into the square [-1, 1]."""
    ink = [point for stroke in strokes for point in _curve(stroke)]
    low, high = (
        (min(x for x, _ in ink), min(y for _, y in ink)),
        (max(x for x, _ in ink), max(y for _, y in ink)),
    )
    half = max(high[0] - low[0], high[1] - low[1]) / 2
    x0, y0 = (low[0] + high[0]) / 2, (low[1] + high[1]) / 2
    return tuple(tuple(((x - x0) / half, (y - y0) / half) for x, y in stroke) for stroke in strokes)


def draw(glyph: Glyph, dice: Dice) -> Pixels:
    """One writing of the character, in one channel."""
    sheet = Image.new("L", (CANVAS, CANVAS), 0)
    pencil = ImageDraw.Draw(sheet)
    middle = (dice.about(CANVAS / 2, 7), dice.about(CANVAS / 2, 7))
    size, angle, slant = dice.between(0.24, 0.40) * CANVAS, dice.angle(24), dice.between(-0.45, 0.45)
    width = dice.whole(4, 8)
    for stroke in glyph.strokes:
        shaken = [(dice.about(x, 0.17), dice.about(y, 0.17)) for x, y in stroke]
        leaning = [(x + slant * y, y) for x, y in _curve(shaken)]
        pencil.line(turned(leaning, middle, angle, size), fill=255, width=width, joint="curve")
    return np.asarray(sheet.reduce(2))[..., None]


def _curve(stroke: Sequence[Point]) -> list[Point]:
    """Points along the Bezier curve of these control points."""
    (x0, y0), (x1, y1), (x2, y2), (x3, y3) = stroke
    return [(a * x0 + b * x1 + c * x2 + d * x3, a * y0 + b * y1 + c * y2 + d * y3) for a, b, c, d in _WEIGHTS]


_WEIGHTS = [
    ((1 - t) ** 3, 3 * (1 - t) ** 2 * t, 3 * (1 - t) * t**2, t**3) for t in (step / 14 for step in range(15))
]
