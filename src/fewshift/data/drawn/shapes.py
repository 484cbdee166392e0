"""Stars and polygons. A class is an outline; colours, size, place and turn are free."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fewshift.data.domain import Pixels
from fewshift.data.drawn.dice import Dice
from fewshift.data.drawn.paint import CANVAS, Point, canvas, colour, finished, turned


@dataclass(frozen=True)
class Shape:
    """An outline around the origin, and what is inside it."""

    outline: tuple[Point, ...]
    hole: tuple[Point, ...] | None
    hollow: bool


def design(number: int, dice: Dice) -> Shape:
    """The outline of class `number`."""
    corners = 3 + number % 6
    depth = (1.0, 0.72, 0.45, 0.85)[number // 6 % 4]
    twist = dice.between(-0.5, 0.5) if dice.chance(0.4) else 0.0
    narrow = dice.one_of((1.0, 0.8, 0.6))
    outline = []
    for k in range(corners):
        for radius, half in ((1.0, 0.0), (depth, 0.5 + twist)):
            angle = 2 * math.pi * (k + half) / corners - math.pi / 2
            if radius < 1 or half == 0:
                outline.append((radius * math.cos(angle) * narrow, radius * math.sin(angle)))
    inner = dice.whole(3, 6)
    ring = [2 * math.pi * k / inner for k in range(inner)]
    hole = tuple((0.33 * math.cos(a) * narrow, 0.33 * math.sin(a)) for a in ring)
    return Shape(tuple(outline), hole if dice.chance(0.5) else None, dice.chance(0.25))


def draw(shape: Shape, dice: Dice) -> Pixels:
    """One picture of the class."""
    hue, dark = dice.share(), dice.chance(0.25)
    back = colour(hue, dice.between(0.15, 0.6), dice.between(0.7, 0.95) if dark else dice.between(0.1, 0.4))
    fore = colour(
        hue + dice.between(0.3, 0.7), dice.between(0.4, 0.9), 0.3 if dark else dice.between(0.75, 1)
    )
    sheet, pencil = canvas(back)
    middle = (dice.about(CANVAS / 2, 5), dice.about(CANVAS / 2, 5))
    size, angle = dice.between(0.30, 0.46) * CANVAS, dice.angle(18)
    outline = turned(shape.outline, middle, angle, size)
    if shape.hollow:
        pencil.line([*outline, *outline[:2]], fill=fore, width=dice.whole(6, 10), joint="curve")
    else:
        pencil.polygon(outline, fill=fore)
    if shape.hole is not None:
        pencil.polygon(turned(shape.hole, middle, angle, size), fill=fore if shape.hollow else back)
    return finished(sheet, dice)
