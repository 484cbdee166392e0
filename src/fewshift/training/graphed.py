"""Meta-gradients of many tasks at a time on CUDA graphs; equal to `OneByOne` by test.

A batch of tasks takes its inner steps together, each step one replay, then the query gradient is another.
Order 1 needs only λ_T = ∇L_out(θ_T) and Σ g_t (see `fewshift.core.metagrad`). Order 2 keeps θ_t and g_t and
goes back through them, one Hessian-vector product per step, which is a graph as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from fewshift.core.metagrad import MetaGradient
from fewshift.core.updates import Preconditioned
from fewshift.nets.backbone import Backbone
from fewshift.nets.capture import captured
from fewshift.nets.cell_loss import MAX_WAY
from fewshift.nets.cells import Shape
from fewshift.nets.chunks import rounded
from fewshift.nets.graph import GraphEngine
from fewshift.nets.notices import say_once
from fewshift.nets.packing import groups
from fewshift.nets.precision import DEFAULT, Precision, arithmetic
from fewshift.nets.stacks import Stack
from fewshift.nets.static import StaticStep
from fewshift.nets.static_batch import Asked
from fewshift.training.metagradients import FoldedOneByOne, Job, OneByOne
from fewshift.training.settings import InnerLevel
from fewshift.training.static_outer import StaticCurvature, StaticOuter

ROOM = 1536  # images of a batch, support and query together: an update of 16 small tasks is two batches
CELL = 8
AHEAD = 64  # tasks that are taken from the source at a time, at most
SLOTS = 8  # a batch has room for a multiple of so many tasks: few shapes, few graphs


@dataclass(frozen=True)
class GraphedBatches:
    """Many tasks at a time on graphs; tasks that fit no graph take the usual way.

    Second order is computed in TF32 at the least: 16 bits leave too little of a second derivative.
    """

    backbone: Backbone
    precision: Precision = DEFAULT
    captured: bool = True
    room: int = ROOM
    outers: dict[Any, StaticOuter] = field(default_factory=dict, compare=False, repr=False)
    curves: dict[Any, StaticCurvature] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def engine(self) -> GraphEngine:
        """The engine whose inner steps are used."""
        return GraphEngine(self.backbone, captured=self.captured, precision=self.precision)

    @cached_property
    def wide(self) -> GraphedBatches:
        """The same in a precision that second derivatives can bear."""
        return self if self.precision != "float16" else replace(self, precision="tf32", outers={}, curves={})

    def __call__(self, jobs: Iterable[Job], inner: InnerLevel, starts: bool) -> Iterator[MetaGradient]:
        """Equal to `OneByOne` up to rounding."""
        ways = self.wide if inner.order == 2 else self
        source = iter(jobs)
        while ahead := list(islice(source, AHEAD)):
            yield from ways._several(ahead, inner, starts)

    def _several(self, jobs: Sequence[Job], inner: InnerLevel, starts: bool) -> Iterator[MetaGradient]:
        fitting = [place for place, job in enumerate(jobs) if self._fits(job)]
        sizes = [_cells(_asked(jobs[place], query=True)) for place in fitting]
        found: dict[int, MetaGradient] = {}
        for group in groups(sizes, self.room // CELL) if fitting else ():
            chosen = [fitting[place] for place in group]
            found |= dict(zip(chosen, self._together([jobs[c] for c in chosen], inner, starts), strict=True))
        for place, job in enumerate(jobs):
            if place in found:
                yield found.pop(place)
            else:
                say_once("some tasks are too large for a batch of meta-gradients: they are taken one by one")
                way = OneByOne(self.backbone) if inner.order == 2 else FoldedOneByOne(self.backbone)
                yield from way([job], inner, starts)

    def _fits(self, job: Job) -> bool:
        images = len(job.episode.task.support.labels) + len(job.episode.query.labels)
        whole = set(job.start) == set(self.backbone.sites)
        return images <= self.room and job.episode.task.way <= MAX_WAY and whole

    @torch.no_grad()
    def _together(self, jobs: Sequence[Job], inner: InnerLevel, starts: bool) -> list[MetaGradient]:
        sites = self.backbone.sites
        rates = inner.rates(sites, sites[-1])
        rules = [Preconditioned(job.preconditioner, rates) for job in jobs]
        asked = [_asked(job, query=False) for job in jobs]
        with self.engine.lock:
            step = self.engine.loaded(_shape(asked), asked, [job.start for job in jobs], rules, sums=True)
            assert step.summed is not None
            visited: list[tuple[Stack, Stack]] = []  # θ_t and g_t, for order 2
            for _ in range(inner.steps):
                if inner.order == 2:
                    before = _copied(step.params)
                    torch._foreach_zero_(list(step.summed))
                step()
                if inner.order == 2:
                    visited.append((before, _copied(step.summed)))
            outer = self._outer([_asked(job, query=True) for job in jobs], step.params)
            outer()
            final = _copied(step.params)
            if inner.order == 1:
                pulls, adjoint = _pulled(step.rates, outer.adjoint, step.summed), _copied(outer.adjoint)
            else:
                pulls, adjoint = self._backwards(step, visited, outer.adjoint, starts)
            losses, accuracies = outer.losses.clone(), outer.accuracies.clone()
            history = step.history[: inner.steps].clone()
        usable = _usable(losses, (*pulls, *adjoint) if starts else pulls)
        pulls, adjoint = _where(usable, pulls), _where(usable, adjoint) if starts else adjoint
        tasks = self.engine.net.stacks.tasks
        parts = zip(tasks(pulls), tasks(adjoint), tasks(final), strict=True)
        return [
            MetaGradient(
                loss=losses[task],
                preconditioner=pull,
                start=start,
                final=reached,
                inner_losses=history[:, task],
                accuracy=accuracies[task],
                usable=usable[task],
            )
            for task, (pull, start, reached) in enumerate(islice(parts, len(jobs)))
        ]

    def _backwards(
        self, step: StaticStep, visited: list[tuple[Stack, Stack]], adjoint: Stack, starts: bool
    ) -> tuple[Stack, Stack]:
        curve = self._curve(step)
        torch._foreach_copy_(list(curve.adjoint), list(adjoint))
        pulls: Stack | None = None
        while visited:
            params, found = visited.pop()
            more = _pulled(step.rates, curve.adjoint, found)
            pulls = more if pulls is None else tuple(a + b for a, b in zip(pulls, more, strict=True))
            if visited or starts:
                torch._foreach_copy_(list(step.params), list(params))
                curve()
        assert pulls is not None
        return pulls, _copied(curve.adjoint)

    def _curve(self, step: StaticStep) -> StaticCurvature:
        key = (step.shape, tuple(step.images.shape[2:]))
        if key not in self.curves or self.curves[key].step is not step:
            curve = self.curves[key] = StaticCurvature(step)
            if self.captured:
                curve.graph = captured(curve.run, self.engine.pool, self.backbone.device)
        return self.curves[key]

    def _outer(self, tasks: Sequence[Asked], params: Stack) -> StaticOuter:
        pixels, shape = tasks[0].support.images.shape[2:], _shape(tasks)
        key = (shape, tuple(pixels))
        if key not in self.outers:
            new = StaticOuter(self.engine.net, shape, (pixels[0], pixels[1]), self.precision)
            new.prepare()
            if self.captured:
                new.load(tasks)
                torch._foreach_copy_(list(new.params), list(params))
                new.graph = captured(new.run, self.engine.pool, self.backbone.device)
            self.outers[key] = new
        outer = self.outers[key]
        outer.load(tasks)
        torch._foreach_copy_(list(outer.params), list(params))
        return outer


def _asked(job: Job, query: bool) -> Asked:
    task = job.episode.task
    return Asked(task.support, task.way, job.episode.query if query else None)


def _cells(task: Asked) -> int:
    return -(-task.images // CELL)


def _shape(tasks: Sequence[Asked]) -> Shape:
    cells = rounded(sum(_cells(task) for task in tasks))
    if len(tasks) == 1:
        return Shape(1, 1, cells * CELL)
    slots = -(-len(tasks) // SLOTS) * SLOTS
    return Shape(slots, cells if cells != slots else cells + 1, CELL)  # as many cells as slots: one each


def _copied(stack: Stack) -> Stack:
    return tuple(values.clone() for values in stack)


def _usable(losses: Tensor, found: Stack) -> Tensor:  # -> (tasks,) bool
    """Which tasks have finite numbers only; a length is finite only where its numbers are."""
    lengths = [values.transpose(0, 1).flatten(1).norm(dim=1) for values in found]
    return torch.stack([losses, *lengths]).isfinite().all(dim=0)


def _where(usable: Tensor, found: Stack) -> Stack:
    """All tasks' values at once, zero for those that are not usable."""
    return tuple(torch.where(usable[:, None, None], values, 0.0) for values in found)


def _pulled(rates: Stack, adjoint: Stack, found: Stack) -> Stack:
    """−β λ gᵀ for every site and task."""
    with arithmetic("float32"):
        return tuple(-rate * (a @ f.mT) for rate, a, f in zip(rates, adjoint, found, strict=True))
