"""Which arithmetic an engine uses on a GPU, as a value and as a context."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, TypeAlias

import torch

from fewshift.errors import FewshiftError

Precision: TypeAlias = Literal["float32", "tf32", "float16"]
PRECISIONS: tuple[Precision, ...] = ("float32", "tf32", "float16")
DEFAULT: Precision = "tf32"  # torch's own default for convolutions


def precision_named(name: str) -> Precision:
    """The precision of this name."""
    if name not in PRECISIONS:
        raise FewshiftError(f"there is no precision {name!r}: choose one of {', '.join(PRECISIONS)}")
    return name


def activations(precision: Precision, own: torch.dtype) -> torch.dtype:
    """The type of activations and kernels in a network whose weights are of type `own`."""
    return torch.float16 if precision == "float16" else own


# torch's settings for the GPU hold for the whole process: one thread at a time may change them.
changing_settings = threading.RLock()


@contextmanager
def arithmetic(precision: Precision, products: Precision | None = None) -> Iterator[None]:
    """Products of float32 numbers are exact in `float32` and rounded to TF32 first in the others.

    `products` is for those outside of convolutions; None: as in them.

    One thread at a time is inside; the others wait. What another thread computes on a GPU outside of this
    context has the precision of whoever is inside: a server does well to let one thread use a GPU at a time.
    """
    rounded = precision != "float32"
    with changing_settings:
        before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
        _allow(rounded if products is None else products != "float32", rounded)
        try:
            yield
        finally:
            _allow(*before)


def _allow(products: bool, convolutions: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some versions of torch announce another spelling of the same
        torch.backends.cuda.matmul.allow_tf32 = products
        torch.backends.cudnn.allow_tf32 = convolutions
