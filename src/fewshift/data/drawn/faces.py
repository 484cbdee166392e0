"""Cartoon faces. A class is a person; mood, pose and light change."""

from __future__ import annotations

from dataclasses import dataclass

from PIL import ImageDraw

from fewshift.data.domain import Pixels
from fewshift.data.drawn.dice import Dice
from fewshift.data.drawn.paint import CANVAS, Colour, Point, canvas, colour, ellipse, finished


@dataclass(frozen=True)
class Person:
    """Proportions (shares of the head) and colours."""

    head: tuple[float, float]
    skin: tuple[float, float, float]
    hair: tuple[float, float, float]
    cut: int
    eyes: tuple[float, float, float]  # apart, height, size
    iris: float
    brow: float
    nose: float
    mouth: float
    glasses: bool
    beard: bool


def design(number: int, dice: Dice) -> Person:
    """The person of class `number`."""
    return Person(
        head=(dice.between(0.25, 0.34), dice.between(0.32, 0.40)),
        skin=(dice.between(0.03, 0.11), dice.between(0.25, 0.6), dice.between(0.45, 1.0)),
        hair=dice.one_of(
            (
                (0.08, 0.6, 0.25),
                (0.12, 0.7, 0.85),
                (0.04, 0.8, 0.6),
                (0.0, 0.0, 0.12),
                (0.0, 0.02, 0.8),
                (0.85, 0.5, 0.7),
            )
        ),
        cut=number % 5,
        eyes=(dice.between(0.34, 0.52), dice.between(-0.25, 0.05), dice.between(0.11, 0.2)),
        iris=dice.one_of((0.08, 0.33, 0.58)),
        brow=dice.between(-0.08, 0.08),
        nose=dice.between(0.1, 0.3),
        mouth=dice.between(0.22, 0.5),
        glasses=dice.chance(0.3),
        beard=dice.chance(0.25),
    )


def draw(person: Person, dice: Dice) -> Pixels:
    """The person, today."""
    sheet, pencil = canvas(colour(dice.share(), dice.between(0.1, 0.45), dice.between(0.4, 0.95)))
    size = dice.between(0.8, 1.15) * CANVAS
    wide, tall = person.head[0] * size, person.head[1] * size
    middle = (dice.about(CANVAS / 2, 11), dice.about(CANVAS * 0.53, 7))
    look = (dice.about(0, 0.08) * wide, dice.about(0, 0.05) * tall)
    hue, saturation, value = person.skin
    bright = dice.between(0.7, 1.1)
    skin = colour(hue, saturation, value * bright)
    hair = colour(person.hair[0], person.hair[1], person.hair[2] * bright)
    shirt = colour(dice.share(), 0.6, dice.between(0.3, 0.8))
    pencil.polygon(ellipse((middle[0], CANVAS * 1.12), wide * 1.5, CANVAS * 0.26), fill=shirt)
    if person.cut in (1, 3):
        pencil.polygon(ellipse((middle[0], middle[1] + tall * 0.1), wide * 1.25, tall * 1.15), fill=hair)
    pencil.polygon(ellipse(middle, wide, tall), fill=skin)
    if person.beard:
        pencil.pieslice(_box((middle[0], middle[1] + tall * 0.1), wide, tall * 0.92), 15, 165, fill=hair)
    _hair(pencil, person.cut, middle, wide, tall, hair)
    face = (middle[0] + look[0], middle[1] + look[1])
    _eyes(pencil, person, face, wide, tall, dice)
    shade = colour(hue, saturation + 0.15, value * bright * 0.75)
    tip = face[1] + tall * person.nose
    pencil.line(
        [(face[0], face[1] - tall * 0.05), (face[0] + wide * 0.1, tip), (face[0] - wide * 0.05, tip)],
        shade,
        3,
    )
    mood = dice.between(-10, 26)
    lips = _box((face[0], face[1] + tall * (0.52 - mood / 160)), wide * person.mouth, abs(mood) * 0.5 + 3)
    start, end = (10, 170) if mood > 0 else (190, 350)
    if mood > 18:
        pencil.chord(lips, start, end, fill=(120, 20, 30))
    else:
        pencil.arc(lips, start, end, fill=(140, 40, 45), width=4)
    return finished(sheet, dice, light=0.2)


def _hair(
    pencil: ImageDraw.ImageDraw, cut: int, middle: Point, wide: float, tall: float, fill: Colour
) -> None:
    if cut == 0:  # short
        pencil.pieslice(_box(middle, wide * 1.04, tall * 1.06), 195, 345, fill=fill)
    elif cut == 1:  # long, with a parting
        pencil.chord(_box((middle[0], middle[1] - tall * 0.1), wide * 1.12, tall), 190, 350, fill=fill)
    elif cut == 2:  # curls
        for k in range(7):
            place = (middle[0] + wide * (k - 3) / 3, middle[1] - tall * (1.0 - 0.06 * (k - 3) ** 2))
            pencil.polygon(ellipse(place, wide * 0.3, tall * 0.26, corners=10), fill=fill)
    elif cut == 3:  # a fringe
        pencil.chord(_box(middle, wide * 1.05, tall * 1.06), 212, 328, fill=fill)
    # 4: none


def _eyes(
    pencil: ImageDraw.ImageDraw, person: Person, face: Point, wide: float, tall: float, dice: Dice
) -> None:
    apart, height, size = person.eyes
    gaze, open_ = dice.about(0, 0.25), dice.between(0.55, 1.0)
    for side in (-1, 1):
        eye = (face[0] + side * apart * wide, face[1] + height * tall)
        radius = size * wide * 1.5
        pencil.polygon(ellipse(eye, radius, radius * 0.75 * open_, corners=12), fill=(250, 250, 250))
        pupil = (eye[0] + gaze * radius, eye[1])
        pencil.polygon(
            ellipse(pupil, radius * 0.5, radius * 0.5 * open_, corners=10),
            fill=colour(person.iris, 0.7, 0.35),
        )
        brow = eye[1] - radius * 1.3
        ends = [
            (eye[0] - radius, brow + side * person.brow * tall),
            (eye[0] + radius, brow - side * person.brow * tall),
        ]
        pencil.line(ends, fill=(50, 35, 30), width=3)
        if person.glasses:
            pencil.ellipse(_box(eye, radius * 1.35, radius * 1.35), outline=(25, 25, 30), width=3)


def _box(middle: Point, across: float, down: float) -> tuple[float, float, float, float]:
    return (middle[0] - across, middle[1] - down, middle[0] + across, middle[1] + down)
