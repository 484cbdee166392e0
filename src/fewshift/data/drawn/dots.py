"""Constellations. A class is an arrangement of spots; it is shaken and turned, and other spots interfere."""

from __future__ import annotations

from dataclasses import dataclass

from fewshift.data.domain import Pixels
from fewshift.data.drawn.dice import Dice
from fewshift.data.drawn.paint import CANVAS, Point, canvas, colour, ellipse, finished, turned


@dataclass(frozen=True)
class Constellation:
    """Spots in [-1, 1] with their sizes, and the class's leaning towards a colour."""

    spots: tuple[Point, ...]
    sizes: tuple[float, ...]
    hue: float


def design(number: int, dice: Dice) -> Constellation:
    """The arrangement of class `number`."""
    spots: list[Point] = []
    while len(spots) < 5 + number % 5:
        spot = (dice.between(-1, 1), dice.between(-1, 1))
        if all((spot[0] - x) ** 2 + (spot[1] - y) ** 2 > 0.12 for x, y in spots):
            spots.append(spot)
    sizes = tuple(dice.one_of((0.055, 0.08, 0.115)) for _ in spots)
    return Constellation(tuple(spots), sizes, number * 0.618)


def draw(constellation: Constellation, dice: Dice) -> Pixels:
    """The arrangement among others' spots."""
    sheet, pencil = canvas(colour(dice.share(), 0.25, dice.between(0.08, 0.3)))
    middle = (dice.about(CANVAS / 2, 8), dice.about(CANVAS / 2, 8))
    shaken = [(dice.about(x, 0.12), dice.about(y, 0.12)) for x, y in constellation.spots]
    places = turned(shaken, middle, dice.angle(60), dice.between(0.28, 0.44) * CANVAS)
    hue = constellation.hue + dice.about(0, 0.3)
    for _ in range(dice.whole(4, 12)):
        place = (dice.between(0, CANVAS), dice.between(0, CANVAS))
        radius = dice.between(0.015, 0.055) * CANVAS
        pencil.polygon(
            ellipse(place, radius, radius, corners=10), fill=colour(dice.share(), 0.5, dice.between(0.3, 0.8))
        )
    for place, size in zip(places, constellation.sizes, strict=True):
        radius = size * CANVAS * dice.between(0.85, 1.15)
        fill = colour(hue + dice.about(0, 0.08), dice.between(0.25, 0.7), dice.between(0.75, 1.0))
        pencil.polygon(ellipse(place, radius, radius), fill=fill)
    return finished(sheet, dice, light=0.2, grain=0.05)
