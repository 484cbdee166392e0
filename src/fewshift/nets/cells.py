"""Many tasks in one batch of images: the batch is cut into cells of equal size, each owned by one task.

A task takes as many cells as it needs; what it does not fill is padded with images of weight zero. So tasks
of any sizes share one pass through the frozen network, and what belongs to a task (its adapters, its
prototypes) is a batched matrix product over cells. Batch norm is in evaluation mode: padding cannot leak.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from fewshift.nets.pointwise import triton_kernels


@dataclass(frozen=True)
class Shape:
    """So many tasks in so many cells of so many images: what a captured graph is made for."""

    tasks: int
    cells: int
    cell: int

    @property
    def images(self) -> int:
        """How many images the batch holds."""
        return self.cells * self.cell

    @property
    def one_each(self) -> bool:
        """Has every task exactly one cell, so that cells are tasks?"""
        return self.tasks == self.cells


class Cells:
    """Who owns which cell, on buffers that a graph reads. A task's cells lie side by side.

    Sums over a task's cells touch no other task, so that one that diverges harms only itself, and they repeat
    to the bit (on a GPU without Triton only where torch is asked for deterministic algorithms). Both
    directions can be differentiated, twice too.
    """

    def __init__(self, shape: Shape, device: torch.device) -> None:
        self.shape = shape
        self.owner = torch.zeros(shape.cells, dtype=torch.int64, device=device)
        self.first = torch.zeros(shape.tasks + 1, dtype=torch.int64, device=device)  # of each task's cells

    def assign(self, counts: Sequence[int]) -> None:
        """Give the tasks so many cells each, in order.

        Cells that are left over have images of weight zero only. They read the first task's parameters, and
        their sums belong to no task.
        """
        if self.shape.one_each and any(count != 1 for count in counts):
            raise ValueError(f"tasks of {counts} cells do not fit a shape of one cell each: {self.shape}")
        owners = [task for task, count in enumerate(counts) for _ in range(count)]
        first = [0, *accumulate(counts)]
        owners += [0] * (self.shape.cells - len(owners))
        first += [first[-1]] * (self.shape.tasks + 1 - len(first))
        self.owner.copy_(moved(torch.tensor(owners), self.owner.device))
        self.first.copy_(moved(torch.tensor(first), self.owner.device))

    def spread(self, values: Tensor) -> Tensor:  # (tasks, ...) -> (cells, ...)
        """Each cell its owner's value."""
        return values if self.shape.one_each else _Spread.apply(values, self)  # type: ignore[no-untyped-call]

    def total(self, values: Tensor) -> Tensor:  # (cells, ...) -> (tasks, ...)
        """Sums over each task's cells."""
        return values if self.shape.one_each else _Total.apply(values, self)  # type: ignore[no-untyped-call]

    def totals(self, values: Tensor, weights: Tensor | None = None) -> Tensor:  # (k, cells, m, n), (cells,)
        """(k, tasks, m, n): sums over each task's cells, weighted if so wished; not to be differentiated."""
        if self.shape.one_each:
            return values if weights is None else values.mul_(weights[:, None, None])
        kernels = triton_kernels() if values.device.type == "cuda" and values.dtype == torch.float32 else None
        out = values.new_zeros(len(values), self.shape.tasks, *values.shape[2:])
        if kernels is not None:
            kernels.totals(values.contiguous(), weights, self.first, out)
            return out
        if weights is not None:
            values = values * weights[:, None, None]
        used = torch.arange(self.shape.cells, device=values.device) < self.first[-1]
        spare = torch.where(used, self.owner, self.shape.tasks)  # a place of their own for cells left over
        longer = values.new_zeros(len(values), self.shape.tasks + 1, *values.shape[2:])
        return longer.index_add_(1, spare, values)[:, :-1]


class _Spread(torch.autograd.Function):
    """Each cell its owner's value."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, cells: Cells) -> Tensor:
        ctx.cells = cells
        return values.index_select(0, cells.owner)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _Total.apply(gradient, ctx.cells), None  # type: ignore[no-untyped-call]


class _Total(torch.autograd.Function):
    """Sums over each task's cells."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, cells: Cells) -> Tensor:
        ctx.cells = cells
        found = cells.totals(values.reshape(1, len(values), 1, -1))
        return found.reshape(cells.shape.tasks, *values.shape[1:])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _Spread.apply(gradient, ctx.cells), None  # type: ignore[no-untyped-call]


def moved(values: Tensor, device: torch.device) -> Tensor:
    """A copy on the device, from pinned memory where that spares the host a wait."""
    if device.type == "cuda" and values.device.type == "cpu":
        return values.pin_memory().to(device, non_blocking=True)
    return values.to(device)
