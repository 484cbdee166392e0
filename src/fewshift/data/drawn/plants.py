"""Branching plants in ink on paper. A class is a rule of growth; every plant grows a little otherwise."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fewshift.data.domain import Pixels
from fewshift.data.drawn.dice import Dice
from fewshift.data.drawn.paint import CANVAS, Point, canvas, colour, ellipse, finished


@dataclass(frozen=True)
class Growth:
    """How a stem becomes stems."""

    angles: tuple[float, ...]  # of the branches, in degrees
    shrink: float
    depth: int
    trunk: float
    curl: float
    leaf: tuple[float, float]  # length, width in pixels; none when zero
    hue: float
    flower: bool


def design(number: int, dice: Dice) -> Growth:
    """The rule of class `number`."""
    spread = dice.between(14, 48)
    lean = dice.between(-14, 14)
    three = number % 3 == 0
    angles = (lean - spread, lean + spread * dice.between(0.6, 1.2))
    shrink = dice.between(0.62, 0.78) if three else dice.between(0.68, 0.84)
    depth = 4 if three else 6
    return Growth(
        angles=(angles[0], lean, angles[1]) if three else angles,
        shrink=shrink,
        depth=depth,
        trunk=dice.between(0.6, 0.95) / sum(shrink**k for k in range(depth)),
        curl=dice.between(-9, 9),
        leaf=dice.one_of(((0.0, 0.0), (4.0, 2.0), (7.0, 2.2), (5.0, 4.5))),
        hue=dice.between(0.15, 0.45),
        flower=dice.chance(0.35),
    )


def draw(growth: Growth, dice: Dice) -> Pixels:
    """A plant that grew by the rule."""
    sheet, pencil = canvas(
        colour(dice.between(0.08, 0.16), dice.between(0.05, 0.25), dice.between(0.82, 0.98))
    )
    ink = colour(growth.hue - 0.1, 0.5, dice.between(0.12, 0.35))
    green = colour(growth.hue + dice.about(0, 0.04), 0.7, dice.between(0.35, 0.65))
    bloom = colour(growth.hue + 0.5, 0.7, 0.9)
    wind = dice.between(-7, 7)
    root = (dice.about(CANVAS / 2, 8), CANVAS * dice.between(0.93, 1.0))
    tips: list[tuple[Point, float]] = []
    growing = [(root, -90.0 + dice.between(-6, 6), growth.trunk * CANVAS * dice.between(0.85, 1.1), 0)]
    while growing:
        start, angle, length, depth = growing.pop()
        turn = math.radians(angle)
        end = (start[0] + length * math.cos(turn), start[1] + length * math.sin(turn))
        pencil.line([start, end], fill=ink, width=max(2, 7 - 2 * depth))
        if depth + 1 >= growth.depth:
            tips.append((end, turn))
            continue
        for branch in growth.angles:
            bent = angle + branch + growth.curl + wind + dice.between(-8, 8)
            growing.append((end, bent, length * growth.shrink * dice.between(0.85, 1.12), depth + 1))
    long, wide = growth.leaf
    for number, (tip, turn) in enumerate(tips):
        if growth.flower and number % 5 == 0:
            pencil.polygon(ellipse(tip, 5, 5, corners=8), fill=bloom)
        elif long:
            pencil.polygon(ellipse(tip, long, wide, turn, corners=8), fill=green)
    return finished(sheet, dice, light=0.08, grain=0.03)
