"""Hills under a sky. A class is a place with its light; the ridges and the weather change."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from PIL import ImageDraw

from fewshift.data.domain import Pixels
from fewshift.data.drawn.dice import Dice
from fewshift.data.drawn.paint import CANVAS, Colour, Point, colour, ellipse, finished, gradient


@dataclass(frozen=True)
class Place:
    """Colours and the kind of land."""

    sky: tuple[float, float, float]
    glow: float
    land: tuple[float, float]
    ridges: int
    horizon: float
    rough: float
    sun: float
    trees: int
    water: bool


def design(number: int, dice: Dice) -> Place:
    """The place of class `number`."""
    return Place(
        sky=(number * 0.618, dice.between(0.2, 0.75), dice.between(0.3, 1.0)),
        glow=dice.between(-0.25, 0.25),
        land=(number * 0.382 + dice.between(0, 0.2), dice.between(0.15, 0.7)),
        ridges=dice.whole(1, 4),
        horizon=dice.between(0.35, 0.7),
        rough=dice.one_of((0.02, 0.06, 0.14)),
        sun=dice.one_of((0.0, 0.06, 0.1, 0.16)),
        trees=dice.one_of((0, 0, 1, 2)),
        water=dice.chance(0.3),
    )


def draw(place: Place, dice: Dice) -> Pixels:
    """The place at some hour."""
    hue, saturation, value = place.sky
    hue, value = hue + dice.about(0, 0.12), value * dice.between(0.4, 1.15)
    top = colour(hue, saturation, value)
    low = colour(hue + place.glow, saturation * 0.6, value + 0.2)
    sheet, pencil = gradient(top, low)
    if place.sun:
        where = (dice.between(0.1, 0.9) * CANVAS, dice.between(0.08, 0.3) * CANVAS)
        pencil.polygon(
            ellipse(where, place.sun * CANVAS, place.sun * CANVAS), fill=colour(hue + place.glow, 0.15, 1.0)
        )
    for ridge in range(place.ridges):
        near = (ridge + 1) / place.ridges
        level = (place.horizon + (0.92 - place.horizon) * (near - 1 / place.ridges)) * CANVAS
        shade = colour(
            place.land[0] + dice.about(0, 0.08),
            place.land[1] * (0.4 + 0.6 * near),
            value * (0.95 - 0.6 * near) + 0.1,
        )
        line = _ridge(level + dice.about(0, 9), place.rough * CANVAS, dice)
        pencil.polygon([*line, (CANVAS, CANVAS), (0, CANVAS)], fill=shade)
        if place.trees and ridge == place.ridges - 1:
            _trees(
                pencil,
                line,
                place.trees,
                colour(place.land[0] + 0.1, place.land[1] + 0.2, value * 0.25),
                dice,
            )
    if place.water:
        shore = dice.between(0.82, 0.9) * CANVAS
        pencil.rectangle((0, shore, CANVAS, CANVAS), fill=colour(hue, saturation * 0.8, value * 0.8))
        for _ in range(5):
            x, y = dice.between(0, CANVAS), dice.between(shore, CANVAS)
            pencil.line([(x, y), (x + dice.between(8, 26), y)], fill=low, width=2)
    return finished(sheet, dice, light=0.1, grain=0.05)


def _ridge(level: float, rough: float, dice: Dice) -> list[Point]:
    across = np.arange(0, CANVAS + 1, 4)
    height = np.full(len(across), level)
    for k in (1, 2, 4, 7):
        height -= (
            rough / k * np.sin(dice.between(0.6, 1.6) * k * 6.3 / CANVAS * across + dice.between(0, 6.3))
        )
    return list(zip(across.tolist(), height.tolist(), strict=True))


def _trees(pencil: ImageDraw.ImageDraw, line: list[Point], kind: int, fill: Colour, dice: Dice) -> None:
    for _ in range(dice.whole(3, 7)):
        x, y = dice.one_of(line)
        size = dice.between(7, 15)
        if kind == 1:
            pencil.polygon([(x - size * 0.5, y), (x + size * 0.5, y), (x, y - size * 2)], fill=fill)
        else:
            pencil.line([(x, y), (x, y - size)], fill=fill, width=3)
            pencil.polygon(ellipse((x, y - size * 1.4), size * 0.7, size * 0.7, corners=10), fill=fill)
