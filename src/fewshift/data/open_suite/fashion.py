"""Fashion-MNIST: ten kinds of clothes, 500 images per class.

The package has one JSON file per class and no train and test part. Rows that are not 784 long (class 0 has
two empty ones) and repeated images are skipped; what is wanted is at the front, so a file is read only that
far.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
from numpy.typing import NDArray

from fewshift.data.open_suite.archive import read_files
from fewshift.data.open_suite.mnist import draw
from fewshift.data.open_suite.source import Archives, Source, test_only

PACKAGE = "fashion-mnist"
SIDE, IMAGES = 28, 500
NAMES = (
    "T-shirt or top",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)


@cache
def source() -> Source:
    """The domain `fashion`."""
    return Source(
        spec=test_only("fashion", NAMES, IMAGES),
        role="unseen",
        packages=(PACKAGE,),
        origin="photographs of clothes (Fashion-MNIST)",
        licence="MIT",
        attribution="Zalando SE; package by Guilherme Zaluchi",
        open=_open,
        draw=draw,
    )


def _open(archives: Archives) -> Callable[[int], list[NDArray[np.uint8]]]:
    wanted = {f"src/clothes/{class_id}.json": class_id for class_id in range(len(NAMES))}
    images = {
        wanted[path]: first_images(content.decode())
        for path, content in read_files(archives[PACKAGE], wanted.__contains__)
    }
    return images.__getitem__


def first_images(text: str) -> list[NDArray[np.uint8]]:
    """The first whole, different images of {"data": [[784 numbers], ...]}."""
    images: dict[bytes, NDArray[np.uint8]] = {}
    rows = (row for row in _rows(text) if len(row) == SIDE * SIDE)
    while len(images) < IMAGES:
        image = np.asarray(next(rows), dtype=np.uint8).reshape(SIDE, SIDE)
        images.setdefault(image.tobytes(), image)
    return list(images.values())


def _rows(text: str) -> Iterator[list[int]]:
    """The rows one after the other, without parsing the rest of the file."""
    decoder, place = json.JSONDecoder(), text.find("[") + 1
    while (start := text.find("[", place)) >= 0:
        row, place = decoder.raw_decode(text, start)
        yield row
