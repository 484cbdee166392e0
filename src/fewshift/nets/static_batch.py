"""Losses and gradients of one task or of many on fixed buffers, which a CUDA graph can replay over.

Everything that differs between tasks is a buffer: images, labels, weights, ways, parameters. Images of weight
zero pad a batch, and the logits of classes that a task does not have are pushed away, so that a handful of
graphs serve every task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fewshift.nets.adapters import LAST
from fewshift.nets.cell_loss import FAR, MAX_WAY, Targets, cell_accuracies, cell_gradients, cell_losses
from fewshift.nets.cells import Cells, Shape, moved
from fewshift.nets.frozen_net import FrozenNet
from fewshift.nets.precision import Precision, arithmetic
from fewshift.nets.stacks import Stack
from fewshift.nets.task_net import Head, Kept, TaskNet
from fewshift.types import Labelled


@dataclass(frozen=True)
class Asked:
    """A task as a batch holds it: images that the centroids are made of, and images that are asked about."""

    support: Labelled
    way: int
    query: Labelled | None = None  # None: the support set itself is asked about

    @property
    def images(self) -> int:
        """How many images it needs room for."""
        return len(self.support.labels) + (len(self.query.labels) if self.query else 0)


class StaticBatch:
    """Losses of the tasks in a batch and their gradients, on fixed buffers."""

    scores = False  # are accuracies wanted, too?

    def __init__(self, net: FrozenNet, shape: Shape, pixels: tuple[int, int], precision: Precision) -> None:
        own = net.last  # its type and device are those of everything but activations
        self.frozen, self.shape, self.precision = net, shape, precision
        self.cells = Cells(shape, own.device)
        self.net = TaskNet(net, self.cells)
        empty = torch.zeros(shape.images, 3, *pixels, dtype=own.dtype, device=own.device)
        self.images = empty.contiguous(memory_format=torch.channels_last)
        self.targets = Targets(self.cells, own)
        self.params = net.stacks.zeros(shape.tasks, own)
        self.head = self.fresh_head()
        self.losses = torch.zeros(shape.tasks, dtype=own.dtype, device=own.device)
        self.accuracies = torch.zeros_like(self.losses)

    def fresh_head(self) -> Head:
        """What no parameter changes of the images now in the buffer."""
        with torch.no_grad(), arithmetic(self.precision):
            return self.net.head(self.images)

    def load(self, tasks: Sequence[Asked]) -> None:
        """Put images and labels into the buffers; nothing waits for the device."""
        load_tasks(tasks, self.images, self.targets)
        for buffer, value in zip(self.head, self.fresh_head(), strict=True):
            buffer.copy_(value)

    def gradients(self) -> Stack:
        """The gradients of all parameters; losses and accuracies are left in their buffers."""
        with torch.no_grad(), arithmetic(self.precision):
            self.net.set(self.params)
            pooled, kept = self.net.forward(self.head)
            found = self.parameter_gradients(pooled, kept)
            self.net.branches = {}  # a graph's memory: the next graph may use it
            return found

    def parameter_gradients(self, pooled: Tensor, kept: list[Kept]) -> Stack:
        """Back from the pooled activations to the parameters."""
        with arithmetic("float32"):
            last = self.cells.spread(self.frozen.stacks.site(self.params, LAST))
            rows = pooled.view(self.shape.cells, self.shape.cell, -1)
            losses, logits, at_pooled, at_last = cell_gradients(rows, last, self.targets)
            self.losses.copy_(losses)
            if self.scores:
                self.accuracies.copy_(cell_accuracies(logits, self.targets))
        found = self.net.backward(at_pooled.flatten(0, 1), kept)
        self.frozen.stacks.site(found, LAST).copy_(self.cells.total(at_last))
        return found

    def objective(self, pooled: Tensor, last: Tensor) -> Tensor:  # (n, d), (cells, d, d) -> (tasks,)
        """Losses from pooled activations and each cell's last map, for autograd."""
        return cell_losses(pooled.view(self.shape.cells, self.shape.cell, -1) @ last.mT, self.targets)


def load_tasks(tasks: Sequence[Asked], images: Tensor, targets: Targets) -> None:
    """Put tasks into a batch's buffers, support before query; nothing waits for the device."""
    shape, own = targets.cells.shape, images
    places, values, counts, first = [], [], [], 0
    rows, far = torch.zeros(2, shape.images), torch.full((shape.tasks, MAX_WAY), FAR)
    flat = targets.labels.view(-1)
    for number, task in enumerate(tasks):
        place = first
        asked = task.support if task.query is None else task.query
        for part in (task.support,) if task.query is None else (task.support, task.query):
            end = place + len(part.labels)
            places += [images[place:end], flat[place:end]]
            values += [part.images, part.labels]
            rows[0 if part is task.support else 1, place:end] = 1.0
            if part is asked:
                rows[1, place:end] = 1.0
            place = end
        far[number, : task.way] = 0.0
        counts.append(-(-task.images // shape.cell))
        first += counts[-1] * shape.cell
    flat.zero_()
    images.zero_()
    for buffer, value in zip(places, values, strict=True):
        buffer.copy_(value)
    targets.cells.assign(counts)
    counted = moved(rows.to(own.dtype), own.device).view(2, shape.cells, shape.cell)
    targets.set(counted, moved(far.to(own.dtype), own.device))
