"""What a network does to single numbers between its convolutions, in one pass where Triton is there.

All tensors lie in memory alike (channels-last images of one shape). The torch versions define the result.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from fewshift.nets.notices import say_once


@cache
def triton_kernels() -> Any:
    """The module of Triton kernels, or None where there is no Triton."""
    try:
        from fewshift.nets import pointwise_triton
    except ImportError:
        say_once("Triton is not installed, so the graph engine takes more passes over memory than it could")
        return None
    return pointwise_triton


def fused(*alike: Tensor | None) -> Any:
    """The kernels for these tensors, or None where torch must do."""
    x = alike[0]
    assert x is not None
    if x.device.type != "cuda" or x.dtype not in (torch.float16, torch.float32) or x.numel() >= 2**31:
        return None
    dense = x.is_contiguous(memory_format=torch.channels_last)
    if not dense or any(other is not None and other.stride() != x.stride() for other in alike):
        return None
    return triton_kernels()


def masked_(gradient: Tensor, activation: Tensor, more: Tensor | None = None, stride: int = 1) -> Tensor:
    """(gradient + more) where the ReLU's output is not zero, in place.

    With a stride, `more` is smaller and is added to every stride-th pixel of each row and column.
    """
    kernels = fused(gradient, activation, more if stride == 1 else None)
    if kernels is not None and (stride == 1 or kernels.takes(more)):
        kernels.masked_(gradient, activation, more, stride)
        return gradient
    if more is not None:
        gradient[:, :, ::stride, ::stride].add_(more)
    return relu_gradient_(gradient, activation)


def relu_gradient_(gradient: Tensor, activation: Tensor) -> Tensor:
    """Zero the gradient where the ReLU's output is zero, in place."""
    found: Tensor = torch.ops.aten.threshold_backward.grad_input(gradient, activation, 0, grad_input=gradient)
    return found


def finished_(response: Tensor, bias: Tensor, shortcut: Tensor | None, rectify: bool = True) -> Tensor:
    """ReLU(response + bias + shortcut), in place; `bias` is one number per channel."""
    kernels = fused(response, shortcut)
    if kernels is not None:
        kernels.finished_(response, bias, shortcut, rectify)
        return response
    response.add_(bias[:, None, None])
    if shortcut is not None:
        response.add_(shortcut)
    return response.relu_() if rectify else response


def topmost(share: Tensor, output: Tensor) -> Tensor:  # (n, c), (n, c, h, w) -> (n, c, h, w)
    """Each pixel's gradient of a mean over pixels, before the ReLU that gave `output`."""
    kernels = fused(output)
    if kernels is not None:
        found = torch.empty_like(output)
        kernels.topmost(share.contiguous(), output, found)
        return found
    return share[:, :, None, None] * (output > 0)
