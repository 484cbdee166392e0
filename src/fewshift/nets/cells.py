"""Many tasks in one batch of images: the batch is cut into cells of equal size, each owned by one task.

A task takes as many cells as it needs; what it does not fill is padded with images of weight zero. So tasks of
any sizes share one pass through the frozen network, and what belongs to a task (its adapters, its
prototypes) is a batched matrix product over cells. Batch norm is in evaluation mode: padding cannot leak.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


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
    """Who owns which cell, on buffers that a graph reads."""

    def __init__(self, shape: Shape, device: torch.device, dtype: torch.dtype) -> None:
        self.shape = shape
        self.owner = torch.zeros(shape.cells, dtype=torch.int64, device=device)
        self.members = torch.zeros(shape.tasks, shape.cells, dtype=dtype, device=device)  # one-hot owners

    def assign(self, counts: Sequence[int]) -> None:
        """Give the tasks so many cells each, in order; cells that are left over count for nobody.

        Those go to the first task, whose result they cannot change: all their images have weight zero.
        """
        owners = [task for task, count in enumerate(counts) for _ in range(count)]
        owners += [0] * (self.shape.cells - len(owners))
        there = torch.tensor(owners)
        self.owner.copy_(moved(there, self.owner.device))
        one_hot = there == torch.arange(self.shape.tasks)[:, None]
        self.members.copy_(moved(one_hot.to(self.members.dtype), self.owner.device))

    def spread(self, values: Tensor, dim: int = 0) -> Tensor:  # (.., tasks, ..) -> (.., cells, ..)
        """Each cell its owner's value."""
        return values if self.shape.one_each else values.index_select(dim, self.owner)

    def total(self, values: Tensor) -> Tensor:  # (cells, m, n) -> (tasks, m, n)
        """Sums over a task's cells."""
        return values if self.shape.one_each else self.collect(values)

    def collect(self, values: Tensor, members: Tensor | None = None) -> Tensor:
        """(.., cells, m, n) -> (.., tasks, m, n): sums over a task's cells, as a product that repeats to the bit.

        `members` replaces the ones by other weights of the cells.
        """
        weights = self.members if members is None else members
        *first, cells, m, n = values.shape
        return (weights @ values.reshape(*first, cells, m * n)).view(*first, self.shape.tasks, m, n)


def moved(values: Tensor, device: torch.device) -> Tensor:
    """A copy on the device, from pinned memory where that spares the host a wait."""
    if device.type != "cuda":
        return values.to(device)
    return values.pin_memory().to(device, non_blocking=True)
