"""The pixel rule of a kit: how its backbone wants its images."""

from __future__ import annotations

from dataclasses import asdict

from fewshift.data.pixels import PixelRule
from fewshift.nets.kit import Kit


def pixel_rule(kit: Kit) -> PixelRule:
    """The rule to read episodes by for this kit; a kit keeps it as plain data."""
    return PixelRule(**asdict(kit.images))
