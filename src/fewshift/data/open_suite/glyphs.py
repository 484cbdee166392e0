"""Printed characters: a class is a character, an image is one font family's regular style of it.

`glyphs` (seven scripts) is for training. `scripts` holds Khmer and Telugu letters in other fonts: a domain
nobody trains on, for choosing what a method does on such domains without looking at a test domain. Characters
are centred, which raw pixels would profit from, so each image gets a small turn, shear, scale and shift of
its own.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import cache, lru_cache
from typing import TypeAlias

from PIL import Image, ImageFont

from fewshift.data.domain import Role
from fewshift.data.open_suite.archive import read_file
from fewshift.data.open_suite.drawing import png
from fewshift.data.open_suite.source import Archives, Source, read_classes, spec_of
from fewshift.data.random import keyed_stream
from fewshift.errors import DataError
from fewshift.types import SPLITS

SIDE = 48
_FINE = 2 * SIDE  # drawn at this side, then halved: smooth edges
_INK = 0.62  # the longer side of a character, as a share of the image's
_FONT_SIZE = 64

Glyph: TypeAlias = tuple[bytes, str, tuple[float, ...]]  # font file, character, five numbers in [-1, 1)


@cache
def source() -> Source:
    """The domain `glyphs`."""
    scripts = "Latin, Greek, Cyrillic, Hebrew, Arabic, Devanagari and Thai"
    return _source("glyphs", "seen", f"characters of {scripts} in open fonts")


@cache
def scripts_source() -> Source:
    """The domain `scripts`."""
    return _source("scripts", "valid_unseen", "Khmer and Telugu letters in open fonts")


def _source(name: str, role: Role, origin: str) -> Source:
    classes = read_classes(name)
    listed = [fonts for split in SPLITS for fonts in classes[split].values()]  # script -> families, by class
    names = [c for split in SPLITS for c in classes[split]]
    pairs = {(script, f) for fonts in listed for script, families in fonts.items() for f in families}

    def open_fonts(archives: Archives) -> Callable[[int], list[Glyph]]:
        files = {pair: _font_file(archives, *pair) for pair in sorted(pairs)}

        def job(class_id: int) -> list[Glyph]:
            return [
                (files[script, f], names[class_id], wobble(name, names[class_id], f))
                for script, families in listed[class_id].items()
                for f in families
            ]

        return job

    return Source(
        spec=spec_of(name, classes, lambda fonts: sum(len(families) for families in fonts.values())),
        role=role,
        packages=tuple(sorted({package_of(family) for _, family in pairs})),
        origin=origin,
        licence="OFL-1.1",
        attribution="the makers of the fonts, named in ATTRIBUTION.md",
        open=open_fonts,
        draw=draw,
    )


def package_of(family: str) -> str:
    """The npm package of a font family."""
    return f"@fontsource/{family}"


def wobble(domain: str, character: str, family: str) -> tuple[float, ...]:
    """Five numbers in [-1, 1) that depend on this image's name alone."""
    return tuple(2 * u - 1 for u in keyed_stream("glyph", domain, character, family).uniforms(5))


def _font_file(archives: Archives, script: str, family: str) -> bytes:
    return read_file(archives[package_of(family)], f"files/{family}-{script}-400-normal.woff2")


def draw(glyphs: list[Glyph]) -> list[bytes]:
    """The pictures of one class, black on white."""
    return [draw_glyph(*glyph) for glyph in glyphs]


def draw_glyph(font_file: bytes, character: str, numbers: tuple[float, ...]) -> bytes:
    """One character, turned up to 10 degrees, sheared up to 0.12, scaled by 15 and shifted by 6 per cent."""
    turn, shear, size, across, down = numbers
    mask = _font(font_file).getmask(character, mode="L")
    ink = Image.frombytes("L", mask.size, bytes(mask))
    box = ink.getbbox()
    if box is None:
        raise DataError(f"a font draws nothing for {character!r}: fetch the pinned packages again")
    scale = _INK * _FINE / max(box[2] - box[0], box[3] - box[1]) * 1.15**size
    # Where a point of the image lies in the drawn character: the inverse of turn, shear and scale.
    sine, cosine = 0.1736 * turn, (1 - (0.1736 * turn) ** 2) ** 0.5
    a, b = (cosine + 0.12 * shear * sine) / scale, (sine - 0.12 * shear * cosine) / scale
    d, e = -sine / scale, cosine / scale
    x, y = _FINE * (0.5 + 0.06 * across), _FINE * (0.5 + 0.06 * down)
    c = (box[0] + box[2]) / 2 - a * x - b * y
    f = (box[1] + box[3]) / 2 - d * x - e * y
    moved = ink.transform(
        (_FINE, _FINE), Image.Transform.AFFINE, (a, b, c, d, e, f), Image.Resampling.BICUBIC
    )
    return png(moved.resize((SIDE, SIDE), Image.Resampling.BOX).point(lambda value: 255 - value))


@lru_cache(maxsize=256)
def _font(font_file: bytes) -> ImageFont.FreeTypeFont:
    try:
        return ImageFont.truetype(io.BytesIO(font_file), _FONT_SIZE, layout_engine=ImageFont.Layout.BASIC)
    except OSError as problem:
        raise DataError(
            f"this Pillow cannot read WOFF2 fonts ({problem}): run pip install --upgrade pillow"
        ) from problem
