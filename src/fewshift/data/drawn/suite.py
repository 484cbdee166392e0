"""The drawn domains, their roles, and the source that draws an image when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fewshift.data.domain import Domain, Item, Pixels, Provenance, Role
from fewshift.data.drawn import cells, dots, faces, glyphs, landscapes, plants, shapes, textures
from fewshift.data.drawn.dice import Dice
from fewshift.data.spec import flat_spec
from fewshift.errors import DataError
from fewshift.types import Split

IMAGES = 30  # a class
SEEN_CLASSES: Mapping[Split, int] = {"train": 40, "valid": 10, "test": 14}
UNSEEN_CLASSES: Mapping[Split, int] = {"test": 40}
PROVENANCE = Provenance("drawn by Fewshift", "Apache-2.0", "The Fewshift developers")


@dataclass(frozen=True)
class Kind:
    """A kind of picture: `design` makes a class of its number, `draw` makes a picture of the class."""

    role: Role
    design: Callable[[int, Dice], Any]
    draw: Callable[[Any, Dice], Pixels]


DRAWN: Mapping[str, Kind] = {
    "shapes": Kind("seen", shapes.design, shapes.draw),
    "glyphs": Kind("seen", glyphs.design, glyphs.draw),
    "textures": Kind("seen", textures.design, textures.draw),
    "faces": Kind("seen", faces.design, faces.draw),
    "landscapes": Kind("seen", landscapes.design, landscapes.draw),
    "dots": Kind("valid_unseen", dots.design, dots.draw),
    "plants": Kind("unseen", plants.design, plants.draw),
    "cells": Kind("unseen", cells.design, cells.draw),
}


@dataclass(frozen=True)
class DrawnSource:
    """Draws each image on request; (seed, name, class, index) says which one."""

    name: str
    kind: Kind
    seed: int = 0
    _classes: dict[int, Any] = field(default_factory=dict, repr=False, compare=False)

    def read(self, items: Sequence[Item]) -> list[Pixels]:
        """The images at these places."""
        return [self._draw(class_id, index) for class_id, index in items]

    def _draw(self, class_id: int, index: int) -> Pixels:
        if class_id not in self._classes:
            dice = Dice("drawn class", self.seed, self.name, class_id)
            self._classes[class_id] = self.kind.design(class_id, dice)
        dice = Dice("drawn image", self.seed, self.name, class_id, index)
        return self.kind.draw(self._classes[class_id], dice)


def drawn_domain(name: str, seed: int = 0, images: int = IMAGES) -> Domain:
    """One drawn domain; other seeds draw other classes and images."""
    if name not in DRAWN:
        raise DataError(f"there is no drawn domain {name!r}: choose one of {', '.join(DRAWN)}")
    kind = DRAWN[name]
    counts = SEEN_CLASSES if kind.role == "seen" else UNSEEN_CLASSES
    classes = sum(counts.values())
    names = tuple(f"{name} {number:02d}" for number in range(classes))
    spec = flat_spec(name, names, (images,) * classes, counts)
    return Domain(spec, DrawnSource(name, kind, seed), kind.role, PROVENANCE)


def drawn_suite() -> list[Domain]:
    """All drawn domains, in the order of `DRAWN`."""
    return [drawn_domain(name) for name in DRAWN]
