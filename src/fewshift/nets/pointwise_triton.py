"""Triton kernels of `pointwise`: one pass over memory each."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

BLOCK = 2048


@triton.jit  # type: ignore[untyped-decorator]
def _masked(
    gradient: Any, activation: Any, more: Any, count: Any, ADD: tl.constexpr, BLOCK: tl.constexpr
) -> None:
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < count
    value = tl.load(gradient + places, mask=inside)
    if ADD:
        value += tl.load(more + places, mask=inside)
    alive = tl.load(activation + places, mask=inside) > 0
    tl.store(gradient + places, tl.where(alive, value, 0.0), mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _finished(
    response: Any,
    bias: Any,
    shortcut: Any,
    count: Any,
    channels: Any,
    ADD: tl.constexpr,
    RECTIFY: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < count
    value = tl.load(response + places, mask=inside).to(tl.float32)
    value += tl.load(bias + places % channels, mask=inside).to(tl.float32)
    if ADD:
        value += tl.load(shortcut + places, mask=inside).to(tl.float32)
    if RECTIFY:
        value = tl.maximum(value, 0.0)
    tl.store(response + places, value, mask=inside)


def masked_(gradient: Tensor, activation: Tensor, more: Tensor | None) -> None:
    """See `pointwise.masked_`."""
    count = gradient.numel()
    other = gradient if more is None else more
    _masked[(triton.cdiv(count, BLOCK),)](
        gradient, activation, other, count, more is not None, BLOCK, num_warps=8
    )


def finished_(response: Tensor, bias: Tensor, shortcut: Tensor | None, rectify: bool) -> None:
    """See `pointwise.finished_`."""
    count, channels = response.numel(), response.shape[1]
    other = response if shortcut is None else shortcut
    grid = (triton.cdiv(count, BLOCK),)
    _finished[grid](response, bias, other, count, channels, shortcut is not None, rectify, BLOCK, num_warps=8)
