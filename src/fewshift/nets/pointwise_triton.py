"""Triton kernels of `pointwise` and `branch`: one pass over memory each.

Kernels have no annotations but `tl.constexpr`: Triton reads them as code.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 2048


@triton.jit  # type: ignore[untyped-decorator]
def _masked(  # type: ignore[no-untyped-def]
    gradient,
    activation,
    more,
    count,
    high,
    wide,
    channels,
    ADD: tl.constexpr,
    STRIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < count
    value = tl.load(gradient + places, mask=inside).to(tl.float32)
    if ADD and STRIDE == 1:
        value += tl.load(more + places, mask=inside).to(tl.float32)
    if ADD and STRIDE > 1:
        channel = places % channels
        pixel = places // channels
        column = pixel % wide
        row = (pixel // wide) % high
        image = pixel // (wide * high)
        small_wide = (wide + STRIDE - 1) // STRIDE
        small_high = (high + STRIDE - 1) // STRIDE
        chosen = inside & (row % STRIDE == 0) & (column % STRIDE == 0)
        small = (image * small_high + row // STRIDE) * small_wide + column // STRIDE
        value += tl.load(more + small * channels + channel, mask=chosen, other=0.0).to(tl.float32)
    alive = tl.load(activation + places, mask=inside) > 0
    value = tl.where(alive, value, 0.0)
    tl.store(gradient + places, value.to(gradient.dtype.element_ty), mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _finished(  # type: ignore[no-untyped-def]
    response,
    bias,
    shortcut,
    count,
    channels,
    ADD: tl.constexpr,
    RECTIFY: tl.constexpr,
    BLOCK: tl.constexpr,
):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < count
    value = tl.load(response + places, mask=inside).to(tl.float32)
    value += tl.load(bias + places % channels, mask=inside).to(tl.float32)
    if ADD:
        value += tl.load(shortcut + places, mask=inside).to(tl.float32)
    if RECTIFY:
        value = tl.maximum(value, 0.0)
    tl.store(response + places, value.to(response.dtype.element_ty), mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _branch(  # type: ignore[no-untyped-def]
    x,
    adapter,
    owner,
    base,
    more,
    alive,
    out,
    rows,
    inputs,
    outputs,
    task_stride,
    input_stride,
    output_stride,
    BASE: tl.constexpr,
    MORE: tl.constexpr,
    MASK: tl.constexpr,
    RECTIFY: tl.constexpr,
    ROWS: tl.constexpr,
    INPUTS: tl.constexpr,
    OUTPUTS: tl.constexpr,
):
    cell = tl.program_id(1)
    wide = tl.cdiv(outputs, OUTPUTS)
    row = (tl.program_id(0) // wide) * ROWS + tl.arange(0, ROWS)
    column = (tl.program_id(0) % wide) * OUTPUTS + tl.arange(0, OUTPUTS)
    depth = tl.arange(0, INPUTS)
    task = tl.load(owner + cell)
    first = cell * rows + row
    total = tl.zeros((ROWS, OUTPUTS), dtype=tl.float32)
    for start in range(0, inputs, INPUTS):
        at = start + depth
        a = tl.load(
            x + first[:, None] * inputs + at[None, :],
            mask=(row < rows)[:, None] & (at < inputs)[None, :],
            other=0.0,
        )
        b = tl.load(
            adapter + task * task_stride + at[:, None] * input_stride + column[None, :] * output_stride,
            mask=(at < inputs)[:, None] & (column < outputs)[None, :],
            other=0.0,
        )
        total = tl.dot(a, b, total)
    spots = first[:, None] * outputs + column[None, :]
    inside = (row < rows)[:, None] & (column < outputs)[None, :]
    if BASE:
        total += tl.load(base + spots, mask=inside, other=0.0).to(tl.float32)
    if MORE:
        total += tl.load(more + spots, mask=inside, other=0.0).to(tl.float32)
    if RECTIFY:
        total = tl.maximum(total, 0.0)
    if MASK:
        total = tl.where(tl.load(alive + spots, mask=inside, other=0.0) > 0, total, 0.0)
    tl.store(out + spots, total.to(out.dtype.element_ty), mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _totals(values, weights, first, out, cells, size, WEIGHTED: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < size
    task = tl.program_id(1)
    layer = tl.program_id(2).to(tl.int64)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    start = tl.load(first + task)
    end = tl.load(first + task + 1)
    for cell in range(start, end):
        value = tl.load(values + (layer * cells + cell) * size + place, mask=inside, other=0.0)
        if WEIGHTED:
            value *= tl.load(weights + cell)
        total += value
    tl.store(out + (layer * tl.num_programs(1) + task) * size + place, total, mask=inside)


def totals(values: Tensor, weights: Tensor | None, first: Tensor, out: Tensor) -> None:
    """See `Cells.totals`; float32."""
    layers, cells = values.shape[:2]
    size = values[0, 0].numel()
    grid = (triton.cdiv(size, 1024), out.shape[1], layers)
    other = values if weights is None else weights
    _totals[grid](values, other, first, out, cells, size, weights is not None, 1024, num_warps=4)


@triton.jit  # type: ignore[untyped-decorator]
def _topmost(share, output, found, count, area, channels, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < count
    image = places // (area * channels)
    value = tl.load(share + image * channels + places % channels, mask=inside)
    alive = tl.load(output + places, mask=inside) > 0
    tl.store(found + places, tl.where(alive, value, 0.0), mask=inside)


def topmost(share: Tensor, output: Tensor, found: Tensor) -> None:
    """See `pointwise.topmost`."""
    count, channels, area = output.numel(), output.shape[1], output.shape[2] * output.shape[3]
    _topmost[(triton.cdiv(count, BLOCK),)](share, output, found, count, area, channels, BLOCK, num_warps=8)


def takes(more: Tensor | None) -> bool:
    """May this be added at a stride?"""
    return more is None or more.is_contiguous(memory_format=torch.channels_last)


def masked_(gradient: Tensor, activation: Tensor, more: Tensor | None, stride: int = 1) -> None:
    """See `pointwise.masked_`."""
    count, (_, channels, high, wide) = gradient.numel(), gradient.shape
    other = gradient if more is None else more
    grid = (triton.cdiv(count, BLOCK),)
    _masked[grid](
        gradient,
        activation,
        other,
        count,
        high,
        wide,
        channels,
        more is not None,
        stride,
        BLOCK,
        num_warps=8,
    )


def finished_(response: Tensor, bias: Tensor, shortcut: Tensor | None, rectify: bool) -> None:
    """See `pointwise.finished_`."""
    count, channels = response.numel(), response.shape[1]
    other = response if shortcut is None else shortcut
    grid = (triton.cdiv(count, BLOCK),)
    _finished[grid](response, bias, other, count, channels, shortcut is not None, rectify, BLOCK, num_warps=8)


def branched(
    x: Tensor,
    adapter: Tensor,
    owner: Tensor,
    base: Tensor | None,
    more: Tensor | None,
    alive: Tensor | None,
    rectify: bool,
    out: Tensor,
) -> None:  # (cells, rows, k), (tasks, k, n), (cells,), (cells, rows, n) four times
    """See `branch.branched`."""
    cells, rows, inputs = x.shape
    outputs = adapter.shape[2]
    high = 128 if rows > 64 else 64
    wide = min(128, max(16, triton.next_power_of_2(outputs)))
    deep = min(64 if x.dtype == torch.float16 else 32, max(16, triton.next_power_of_2(inputs)))
    grid = (triton.cdiv(rows, high) * triton.cdiv(outputs, wide), cells)
    _branch[grid](
        x,
        adapter,
        owner,
        x if base is None else base,
        x if more is None else more,
        x if alive is None else alive,
        out,
        rows,
        inputs,
        outputs,
        *adapter.stride(),
        base is not None,
        more is not None,
        alive is not None,
        rectify,
        high,
        deep,
        wide,
        num_warps=8 if wide == 128 else 4,
        num_stages=3,
    )
