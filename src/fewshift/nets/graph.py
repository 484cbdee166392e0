"""The folded inner loop as CUDA graphs: one captured step for each padded size, replayed without the host.

A support set is padded to the next size of a short list with images of weight zero, and to a fixed number of
classes whose surplus logits are pushed away, so that a handful of graphs serve every task. Batch norm is in
evaluation mode, so padding cannot leak into real rows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from fewshift.core.centroids import cosine_logits, prototypes
from fewshift.core.descent import Trajectory, gradients
from fewshift.core.updates import Adadelta, AdadeltaState, Preconditioned, Update
from fewshift.nets.backbone import Backbone
from fewshift.nets.engine import FoldedEngine
from fewshift.nets.folded_resnet import FoldedResNet, SupportFeatures
from fewshift.types import Task, TaskParams

Captured: TypeAlias = Preconditioned | Adadelta  # the rules that a graph knows how to feed

MAX_WAY = 50  # the protocol's
SIZES = (8, 16, 32, 48, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448, 480, 512)
FAR = -1e4  # added to the logits of classes that a task does not have: their share underflows to zero
WARM_UP = 3  # steps before a capture, so that libraries have chosen their algorithms


def padded_size(images: int) -> int | None:
    """The smallest size on the list that holds so many images; None when none does."""
    return next((size for size in SIZES if size >= images), None)


def padded_support_loss(
    features: Tensor, labels: Tensor, weights: Tensor, far: Tensor
) -> Tensor:  # (n, d), (n,), (n,), (MAX_WAY,) -> ()
    """L_in with rows of weight zero and absent classes; equal to `support_loss` of the rows that count."""
    logits = cosine_logits(features, prototypes(features, labels, MAX_WAY, weights)) + far
    return (F.cross_entropy(logits, labels, reduction="none") * weights).sum() / weights.sum()


class StaticStep:
    """One step of one kind of update at one padded size, on fixed buffers that a graph can replay over.

    Rates and preconditioners are buffers as well: the rule is captured at rate 1 and each site then goes as
    far along as its rate says, so one graph serves tasks of all rates.
    """

    def __init__(self, net: FoldedResNet, batch: Tensor, start: TaskParams, update: Captured) -> None:
        device = batch.device
        self.features = SupportFeatures(net, batch, tuple(start))
        self.labels = torch.zeros(len(batch), dtype=torch.int64, device=device)
        self.weights = torch.ones(len(batch), device=device, dtype=batch.dtype)
        self.far = torch.zeros(MAX_WAY, device=device, dtype=batch.dtype)
        self.params = {site: value.clone() for site, value in start.items()}
        self.rates = {site: torch.zeros((), device=device, dtype=batch.dtype) for site in start}
        self.rule = _at_rate_one(update)
        self.state = _own_buffers(self.rule.init(self.params))
        self.summed = {site: torch.zeros_like(value) for site, value in start.items()}  # Σ_t g_t
        self.loss = torch.zeros((), device=device, dtype=batch.dtype)
        self.graph: torch.cuda.CUDAGraph | None = None

    def load(self, fresh: SupportFeatures, task: Task, start: TaskParams, update: Captured) -> None:
        """Put a task, already padded and through the stem, into the buffers."""
        copy_heads(self.features, fresh)
        count = len(task.support.labels)
        self.labels.zero_()[:count].copy_(task.support.labels)
        self.weights.zero_()[:count].fill_(1.0)
        self.far.fill_(FAR)[: task.way].zero_()
        for site, value in start.items():
            self.params[site].copy_(value)
            self.rates[site].fill_(update.rates[site])
            self.summed[site].zero_()
        if update.preconditioner is not None:
            _copy(self.rule.preconditioner, update.preconditioner)
        if isinstance(self.state, AdadeltaState):
            for values in (self.state.squares, self.state.deltas):
                for value in values.values():
                    value.zero_()

    def run(self) -> None:
        """Take the step, in place."""
        loss, found = gradients(self._objective, self.params)
        with torch.no_grad():
            moved, state = self.rule.step(self.params, found, self.state)
            for site, param in self.params.items():
                self.summed[site].add_(found[site])
                param.lerp_(moved[site], self.rates[site])
            if isinstance(self.state, AdadeltaState):
                _copy(self.state.squares, state.squares)
                _copy(self.state.deltas, state.deltas)
            self.loss.copy_(loss)

    def __call__(self) -> None:
        """Replay the graph; without one, take the step as it is written."""
        self.run() if self.graph is None else self.graph.replay()

    def _objective(self, params: TaskParams) -> Tensor:
        return padded_support_loss(self.features(params), self.labels, self.weights, self.far)


def capture(run: Callable[[], None], pool: Any) -> torch.cuda.CUDAGraph:
    """Record what `run` does to its buffers as a graph. It runs some times first: load them afterwards."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        run()
    return graph


def copy_heads(target: SupportFeatures, fresh: SupportFeatures) -> None:
    """Put what no parameter changes of a task's images into the buffers of another."""
    for own, theirs in zip(target.heads, fresh.heads, strict=True):
        for buffer, value in zip(own, theirs, strict=True):
            buffer.copy_(value)


def _at_rate_one(update: Captured) -> Any:
    """The same kind of rule on buffers of its own, every rate 1."""
    matrices = update.preconditioner
    buffers = None if matrices is None else {site: matrix.clone() for site, matrix in matrices.items()}
    return replace(update, rates=dict.fromkeys(update.rates, 1.0), preconditioner=buffers)


def _own_buffers(state: Any) -> Any:
    """A state may share tensors while all are zero; buffers that are written to must not."""
    if not isinstance(state, AdadeltaState):
        return state
    return AdadeltaState(*({s: v.clone() for s, v in x.items()} for x in (state.squares, state.deltas)))


def _copy(targets: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    for site, target in targets.items():
        target.copy_(values[site])


@dataclass(frozen=True)
class GraphEngine:
    """CUDA graphs over the folded network; tasks that fit no graph go through the folded engine."""

    backbone: Backbone
    reason: str = "asked for"
    name: str = "graph"
    captured: bool = True  # False: the same steps on the same buffers, uncaptured (for tests without a GPU)
    steps: dict[Any, StaticStep] = field(default_factory=dict, compare=False, repr=False)
    lock: Any = field(default_factory=threading.Lock, compare=False, repr=False)

    @cached_property
    def folded(self) -> FoldedEngine:
        """The engine underneath."""
        return FoldedEngine(self.backbone)

    @cached_property
    def pool(self) -> Any:
        """Memory that all graphs share: no two run at once."""
        return torch.cuda.graph_pool_handle() if self.captured else None

    def adapt(self, task: Task, start: TaskParams, update: Update[Any], steps: int) -> Trajectory:
        """`steps` steps of `update` from `start` on L_in; nothing is read back from the GPU meanwhile."""
        size = padded_size(len(task.support.labels))
        fits = task.way <= MAX_WAY and set(start) == set(self.backbone.sites)
        if size is None or not fits or not isinstance(update, Captured):
            return self.folded.adapt(task, start, update, steps)
        with self.lock, torch.no_grad():  # the buffers hold one task at a time
            step = self.loaded(task, start, update, size)
            losses = step.loss.new_empty(steps)
            for index in range(steps):
                step()
                losses[index].copy_(step.loss)
            return Trajectory({site: value.clone() for site, value in step.params.items()}, losses)

    def embed(self, params: TaskParams, images: Tensor) -> Tensor:  # (n, 3, h, w) -> (n, d)
        """Features under these parameters, without gradients."""
        return self.folded.embed(params, images)

    def loaded(self, task: Task, start: TaskParams, update: Captured, size: int) -> StaticStep:
        """The step for this size, captured if it is new, with the task in its buffers; hold the lock."""
        images = task.support.images
        batch = F.pad(images, (0, 0, 0, 0, 0, 0, 0, size - len(images)))
        key = (size, tuple(images.shape[1:]), type(update), update.preconditioner is None)
        if key not in self.steps:
            step = self.steps[key] = StaticStep(self.folded.net, batch, start, update)
            step.load(step.features, task, start, update)
            step.graph = capture(step.run, self.pool) if self.captured else None
        fresh = SupportFeatures(self.folded.net, batch, tuple(start))
        self.steps[key].load(fresh, task, start, update)
        return self.steps[key]
