"""Which arithmetic an engine uses, as a value and, for a GPU, as a context."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, TypeAlias

import torch

from fewshift.errors import FewshiftError

Precision: TypeAlias = Literal["float32", "tf32", "float16", "bfloat16"]
PRECISIONS: tuple[Precision, ...] = ("float32", "tf32", "float16", "bfloat16")
ON_A_GPU: tuple[Precision, ...] = ("float32", "tf32", "float16")
DEFAULT: Precision = "tf32"  # torch's own default for convolutions
SHORT: dict[Precision, torch.dtype] = {"float16": torch.float16, "bfloat16": torch.bfloat16}


def precision_named(name: str) -> Precision:
    """The precision of this name."""
    if name not in PRECISIONS:
        raise FewshiftError(f"there is no precision {name!r}: choose one of {', '.join(PRECISIONS)}")
    return name


def precision_for(name: str, device: torch.device, on_gpu: Precision = "float16") -> Precision:
    """The precision of this name for work on this device.

    "auto" is `on_gpu` on a GPU, and bfloat16 on a CPU that multiplies it by itself.
    """
    if name == "auto" and device.type == "cuda":
        return on_gpu
    if name == "auto":
        return "bfloat16" if device.type == "cpu" and multiplies_bfloat16() else "float32"
    found = precision_named(name)
    if found == "bfloat16" and device.type != "cpu":
        raise FewshiftError(f"bfloat16 is for CPUs, and this is for {device}: choose float16 there")
    return found


def multiplies_bfloat16() -> bool:
    """Whether this processor has instructions for it; without them bfloat16 is slower than float32."""
    asked = (getattr(torch.cpu, f"_is_{name}_supported", None) for name in ("avx512_bf16", "amx_tile"))
    return any(supported is not None and supported() for supported in asked)


def activations(precision: Precision, own: torch.dtype) -> torch.dtype:
    """The type of activations and kernels in a network whose weights are of type `own`."""
    return SHORT.get(precision, own)


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
