"""Stained cells under a microscope. A class is a kind of cell; which ones lie on the slide is chance."""

from __future__ import annotations

import math
from dataclasses import dataclass

from PIL import ImageFilter

from fewshift.data.domain import Pixels
from fewshift.data.drawn.dice import Dice
from fewshift.data.drawn.paint import CANVAS, Point, canvas, colour, finished, turned


@dataclass(frozen=True)
class Cell:
    """What one cell looks like, in shares of the picture, and how many there are."""

    radius: float
    stretch: float
    lobes: int
    ripple: float
    wall: int
    nucleus: float
    nuclei: int
    grains: int
    many: int
    hue: float


def design(number: int, dice: Dice) -> Cell:
    """The kind of class `number`."""
    radius = dice.between(0.08, 0.26)
    return Cell(
        radius=radius,
        stretch=dice.one_of((1.0, 1.0, 1.4, 2.2)),
        lobes=dice.whole(2, 7),
        ripple=dice.one_of((0.0, 0.08, 0.22)),
        wall=dice.one_of((0, 3, 6)),
        nucleus=dice.between(0.25, 0.6),
        nuclei=dice.one_of((0, 1, 1, 2, 3)),
        grains=dice.one_of((0, 0, 6, 14)),
        many=max(3, round(0.32 / radius**1.45 / 2)),
        hue=0.72 + 0.28 * (number * 0.618 % 1) + (0.35 if dice.chance(0.25) else 0),
    )


def draw(cell: Cell, dice: Dice) -> Pixels:
    """A slide."""
    stain = dice.between(0.75, 1.2)
    hue = cell.hue + dice.about(0, 0.025)
    paper = colour(hue + 0.05, 0.06 * stain, dice.between(0.84, 0.98))
    body = colour(hue, 0.32 * stain, 0.88)
    dark = colour(hue - 0.04, 0.7 * stain, 0.5)
    sheet, pencil = canvas(paper)
    places: list[Point] = []
    for _ in range(dice.whole(cell.many - 1, cell.many + 1)):
        middle = _free_place(places, dice)
        places.append(middle)
        size, angle = cell.radius * CANVAS * dice.between(0.85, 1.15), dice.between(0, 6.3)
        outline = turned(_outline(cell, dice.between(0, 6.3)), middle, angle, size)
        pencil.polygon(outline, fill=body)
        if cell.wall:
            pencil.line([*outline, outline[0]], fill=dark, width=cell.wall)
        for k in range(cell.nuclei):
            away = 0.0 if cell.nuclei == 1 else 0.45
            around = angle + 2 * math.pi * k / cell.nuclei
            place = (middle[0] + away * size * math.cos(around), middle[1] + away * size * math.sin(around))
            radius = size * cell.nucleus / math.sqrt(cell.nuclei)
            pencil.ellipse(
                (place[0] - radius, place[1] - radius, place[0] + radius, place[1] + radius), fill=dark
            )
        for _ in range(cell.grains):
            far, around = size * 0.85 * math.sqrt(dice.share()), dice.between(0, 6.3)
            x, y = middle[0] + far * math.cos(around), middle[1] + far * math.sin(around)
            pencil.ellipse((x - 2, y - 2, x + 2, y + 2), fill=dark)
    if dice.chance(0.4):
        sheet = sheet.filter(ImageFilter.BoxBlur(dice.whole(1, 2)))
    return finished(sheet, dice, light=0.12, grain=0.04)


def _free_place(taken: list[Point], dice: Dice) -> Point:
    """Of a few places the one furthest from all others: cells lie beside each other rather than on top."""
    tries = [(dice.between(0.04, 0.96) * CANVAS, dice.between(0.04, 0.96) * CANVAS) for _ in range(5)]
    return max(tries, key=lambda p: min(((p[0] - x) ** 2 + (p[1] - y) ** 2 for x, y in taken), default=0))


def _outline(cell: Cell, phase: float) -> list[Point]:
    points = []
    for k in range(28):
        angle = 2 * math.pi * k / 28
        radius = 1 + cell.ripple * math.sin(cell.lobes * angle + phase)
        points.append(
            (radius * cell.stretch**0.5 * math.cos(angle), radius / cell.stretch**0.5 * math.sin(angle))
        )
    return points
