"""The inner loop as CUDA graphs: one captured step for each padded size, replayed without the host."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from fewshift.core.descent import Trajectory
from fewshift.core.updates import Update
from fewshift.nets.backbone import Backbone
from fewshift.nets.capture import captured, kept_or_made
from fewshift.nets.cell_loss import MAX_WAY
from fewshift.nets.cells import Cells, Shape
from fewshift.nets.chunks import by_chunks
from fewshift.nets.engine import FoldedEngine, check_sites
from fewshift.nets.frozen_net import FrozenNet, frozen_net
from fewshift.nets.notices import say_once
from fewshift.nets.packing import SIZES, packed, padded_size
from fewshift.nets.precision import DEFAULT, Precision, activations, arithmetic
from fewshift.nets.static import Rule, StaticStep, kind_of
from fewshift.nets.static_batch import Asked
from fewshift.nets.task_net import TaskNet
from fewshift.types import Task, TaskParams

CHUNK = 1024  # images a pass where no gradient is kept
MAX_STEPS = 400


@dataclass(frozen=True)
class GraphEngine:
    """CUDA graphs over the folded network; tasks that fit no graph go through the folded engine."""

    backbone: Backbone
    name: str = "graph"
    precision: Precision = DEFAULT
    captured: bool = True  # False: the same steps on the same buffers, uncaptured (for tests without a GPU)
    steps: dict[Any, StaticStep] = field(default_factory=dict, compare=False, repr=False)
    lock: Any = field(default_factory=threading.RLock, compare=False, repr=False)

    @cached_property
    def folded(self) -> FoldedEngine:
        """The engine for tasks that fit no graph."""
        return FoldedEngine(self.backbone)

    @cached_property
    def net(self) -> FrozenNet:
        """The folded weights, made once."""
        return frozen_net(self.backbone, activations(self.precision, self.backbone.dtype))

    @cached_property
    def single(self) -> TaskNet:
        """The network for embedding: one task, any number of images."""
        own = self.net.last
        return TaskNet(self.net, Cells(Shape(1, 1, 1), own.device))

    @cached_property
    def pool(self) -> Any:
        """Memory that all graphs share: no two run at once."""
        return torch.cuda.graph_pool_handle() if self.captured else None

    def misfit(self, task: Task, start: TaskParams, update: Update[Any], steps: int) -> str | None:
        """Why there is no graph for this; None when there is one."""
        if padded_size(len(task.support.labels)) is None:
            return f"tasks of more than {SIZES[-1]} images"
        if task.way > MAX_WAY:
            return f"tasks of more than {MAX_WAY} ways"
        if set(start) != set(self.backbone.sites):
            return "adapting some of the sites only"
        if steps > MAX_STEPS:
            return f"more than {MAX_STEPS} steps"
        return None if isinstance(update, Rule) else f"the rule {type(update).__name__}"

    def adapt(self, task: Task, start: TaskParams, update: Update[Any], steps: int) -> Trajectory:
        """`steps` steps of `update` from `start` on L_in; nothing is read back from the GPU meanwhile."""
        return self.adapt_many([task], [start], [update], steps)[0]

    def adapt_many(
        self, tasks: Sequence[Task], starts: Sequence[TaskParams], updates: Sequence[Update[Any]], steps: int
    ) -> list[Trajectory]:
        """The same for several tasks; small ones share a batch."""
        found: dict[int, Trajectory] = {}
        fitting: dict[Any, list[int]] = {}
        for number, (task, start, update) in enumerate(zip(tasks, starts, updates, strict=True)):
            check_sites(self.backbone, start)
            misfit = self.misfit(task, start, update, steps)
            if misfit is None and isinstance(update, Rule):
                fitting.setdefault((kind_of(update), task.support.images.shape[1:]), []).append(number)
            else:
                say_once(f"there is no graph for {misfit}: the folded engine does it")
                found[number] = self.folded.adapt(task, start, update, steps)
        for numbers in fitting.values():
            for batch in packed([len(tasks[n].support.labels) for n in numbers]):
                chosen = [numbers[place] for place in batch.places]
                done = self._together(
                    batch.shape,
                    [Asked(tasks[n].support, tasks[n].way) for n in chosen],
                    [starts[n] for n in chosen],
                    [updates[n] for n in chosen],
                    steps,
                )
                found |= dict(zip(chosen, done, strict=True))
        return [found[number] for number in range(len(tasks))]

    def _together(
        self,
        shape: Shape,
        tasks: Sequence[Asked],
        starts: Sequence[TaskParams],
        updates: Sequence[Any],
        steps: int,
    ) -> list[Trajectory]:
        with self.lock, torch.no_grad():  # the buffers hold one batch at a time
            step = self.loaded(shape, tasks, starts, updates)
            for _ in range(steps):
                step()
            losses = step.history[:steps].clone()
            stacks = self.net.stacks
            return [Trajectory(stacks.named(step.params, t), losses[:, t]) for t in range(len(tasks))]

    def embed(self, params: TaskParams, images: Tensor) -> Tensor:  # (n, 3, h, w) -> (n, d)
        """Features under these parameters, without gradients."""
        if set(params) != set(self.backbone.sites):
            return self.folded.embed(params, images)
        stacks, own = self.net.stacks, self.net.last
        with self.lock, torch.no_grad(), arithmetic(self.precision):
            values = stacks.zeros(1, own)
            stacks.fill(values, [params])
            self.single.set(values)
            pooled = by_chunks(
                lambda x: self.single.forward(self.single.head(x), keep=False)[0], images, CHUNK
            )
        with torch.no_grad(), arithmetic("float32"):
            return pooled @ params[self.backbone.sites[-1]].mT

    def embed_many(
        self, params: Sequence[TaskParams], images: Sequence[Tensor]
    ) -> list[Tensor]:  # (n, 3, h, w) each -> (n, d) each
        """The same for several tasks; those with equally many images share passes."""
        alike: dict[Any, list[int]] = {}
        for number, (own, batch) in enumerate(zip(params, images, strict=True)):
            whole = set(own) == set(self.backbone.sites)
            alike.setdefault(batch.shape if whole else number, []).append(number)
        found: dict[int, Tensor] = {}
        for numbers in alike.values():
            each = len(images[numbers[0]])
            together = max(1, CHUNK // each) if each else 1
            for first in range(0, len(numbers), together):
                chosen = numbers[first : first + together]
                features = self._embed_alike([params[n] for n in chosen], [images[n] for n in chosen])
                found |= dict(zip(chosen, features, strict=True))
        return [found[number] for number in range(len(images))]

    def _embed_alike(self, params: Sequence[TaskParams], images: Sequence[Tensor]) -> Sequence[Tensor]:
        """Tasks of one size in one pass."""
        if len(images) == 1:
            return [self.embed(params[0], images[0])]
        count = len(images)
        cells = Cells(Shape(count, count, len(images[0])), images[0].device)
        cells.assign([1] * count)
        net, stacks = TaskNet(self.net, cells), self.net.stacks
        with torch.no_grad(), arithmetic(self.precision):
            values = stacks.zeros(count, self.net.last)
            stacks.fill(values, params)
            net.set(values)
            pooled = net.forward(net.head(torch.cat(list(images))), keep=False)[0]
        with torch.no_grad(), arithmetic("float32"):
            maps = torch.stack([own[self.backbone.sites[-1]] for own in params])
            return list(pooled.view(count, len(images[0]), -1) @ maps.mT)

    def loaded(
        self,
        shape: Shape,
        tasks: Sequence[Asked],
        starts: Sequence[TaskParams],
        updates: Sequence[Any],
        sums: bool = False,
    ) -> StaticStep:
        """The step for this shape, captured if it is new, with the tasks in its buffers; hold the lock.

        `sums`: shall it add up the gradients of all steps?
        """
        pixels = tasks[0].support.images.shape[2:]
        key = (shape, tuple(pixels), kind_of(updates[0]), sums)

        def make() -> StaticStep:
            size = (pixels[0], pixels[1])
            step = StaticStep(self.net, shape, size, self.precision, updates[0], MAX_STEPS, sums)
            if self.captured:
                step.begin(tasks, starts, updates)
                step.graph = captured(step.run, self.pool, self.backbone.device)
            return step

        step = kept_or_made(self.steps, key, make)
        step.begin(tasks, starts, updates)
        return step
