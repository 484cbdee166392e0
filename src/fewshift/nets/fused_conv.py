"""Convolutions with what follows them, and the products that their derivative needs, by the fastest call.

Images are (n, c, h, w), channels-last in memory. On a GPU cuDNN adds bias and shortcut and rectifies before
it writes; where it cannot, one further pass does.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fewshift.nets.pointwise import finished_

_refused: set[Any] = set()  # shapes that cuDNN's fused convolution did not take
WIDE_RESULTS = "dtype_out" in torch.ops.aten.bmm.overloads()  # type: ignore[no-untyped-call]  # since torch 2.8


def convolved(
    x: Tensor, kernel: Tensor, bias: Tensor, shortcut: Tensor | None = None, stride: int = 1
) -> Tensor:
    """ReLU(kernel * x + bias + shortcut), padded by half the kernel."""
    if x.device.type == "cuda" and x.dtype in (torch.float16, torch.float32):
        key = (x.dtype, kernel.shape, x.shape[2:], stride, shortcut is None, torch.backends.cudnn.allow_tf32)
        if key not in _refused:
            try:
                return _by_cudnn(x, kernel, bias, shortcut, stride)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError:
                _refused.add(key)
    response = torch.conv2d(x, kernel, None, stride, kernel.shape[-1] // 2)
    return finished_(response, bias, shortcut)


def _by_cudnn(x: Tensor, kernel: Tensor, bias: Tensor, shortcut: Tensor | None, stride: int) -> Tensor:
    strides, padding, one = [stride] * 2, [kernel.shape[-1] // 2] * 2, [1, 1]
    if shortcut is None:
        return torch.cudnn_convolution_relu(x, kernel, bias, strides, padding, one, 1)
    return torch.cudnn_convolution_add_relu(x, kernel, shortcut, 1.0, bias, strides, padding, one, 1)


def input_gradient(delta: Tensor, x: Tensor, kernel: Tensor, stride: int) -> Tensor:
    """The gradient with respect to x, of which only the shape is read."""
    padding, one, wanted = [kernel.shape[-1] // 2] * 2, [1, 1], [True, False, False]
    found: tuple[Tensor, ...] = torch.ops.aten.convolution_backward(
        delta, x, kernel, None, [stride] * 2, padding, one, False, [0, 0], 1, wanted
    )
    return found[0]


def wide_product(
    a: Tensor, b: Tensor, out: Tensor | None = None
) -> Tensor:  # (b, m, k), (b, k, n) -> (b, m, n)
    """A batched product, added up and returned in float32 at least, of 16-bit factors too."""
    if a.dtype != torch.float16:
        return torch.bmm(a, b) if out is None else torch.bmm(a, b, out=out)
    if a.device.type == "cuda" and WIDE_RESULTS:
        if out is None:
            return torch.ops.aten.bmm.dtype(a, b, torch.float32)  # type: ignore[no-any-return]
        return torch.ops.aten.bmm.dtype_out(a, b, torch.float32, out=out)  # type: ignore[no-any-return]
    return torch.bmm(a.float(), b.float()) if out is None else torch.bmm(a.float(), b.float(), out=out)
