"""Tuning a `ResNet18` by CUDA graphs: one captured pass for each padded size, replayed for every step."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn

from fewshift.core.descent import Trajectory, descend_along
from fewshift.errors import FewshiftError
from fewshift.nets.backbone import Backbone
from fewshift.nets.capture import captured, kept_or_made
from fewshift.nets.cell_loss import MAX_WAY, Targets, cell_losses
from fewshift.nets.cells import Cells, Shape
from fewshift.nets.chunks import by_chunks, rounded
from fewshift.nets.engine import AroundEngine, Engine
from fewshift.nets.flat_weights import Flat, Layout
from fewshift.nets.graph import CHUNK, GraphEngine
from fewshift.nets.notices import say_once
from fewshift.nets.packing import padded_size
from fewshift.nets.precision import DEFAULT, Precision, activations, arithmetic
from fewshift.nets.resnet import ResNet18
from fewshift.nets.static_batch import Asked, load_tasks
from fewshift.nets.tuned_resnet import TunedResNet
from fewshift.nets.tuning import Copies, PlainTuning, Rule, Tuning
from fewshift.types import Labelled, Task, TaskParams


class TuningPass:
    """A loss and its gradients on fixed buffers: images, labels and weights."""

    def __init__(
        self,
        net: TunedResNet,
        weights: Flat,
        gradients: Flat,
        size: int,
        pixels: tuple[int, int],
        precision: Precision,
    ) -> None:
        own = weights.scales
        self.net, self.flat, self.precision = net, weights, precision
        empty = torch.zeros(size, 3, *pixels, dtype=own.dtype, device=own.device)
        self.images = empty.contiguous(memory_format=torch.channels_last)
        self.targets = Targets(Cells(Shape(1, 1, size), own.device), own)
        self.loss = torch.zeros(1, dtype=own.dtype, device=own.device)
        moving = {name: part for name, part in weights._asdict().items() if part.requires_grad}
        self.weights: TaskParams = moving
        self.gradients: TaskParams = {name: getattr(gradients, name) for name in moving}
        self.graph: torch.cuda.CUDAGraph | None = None

    def run(self) -> None:
        """Loss and gradients at the weights in the buffers, into theirs."""
        with torch.enable_grad(), arithmetic(self.precision, products="float32"):
            losses = cell_losses(self.net.features(self.flat, self.images)[None], self.targets)
            found = torch.autograd.grad(losses.sum(), list(self.weights.values()))
        with torch.no_grad():
            self.loss.copy_(losses)
            torch._foreach_copy_(list(self.gradients.values()), list(found))

    def along(
        self, queries: Tensor | None, copies: Iterator[Tensor] | None, params: TaskParams
    ) -> tuple[Tensor, TaskParams]:
        """Loss and gradients at these weights, end to end; the gradients last until the next call."""
        with torch.no_grad():
            torch._foreach_copy_(list(self.weights.values()), [params[name] for name in self.weights])
            if queries is not None and copies is not None:
                queries.copy_(next(copies))
        self.run() if self.graph is None else self.graph.replay()
        return self.loss[0].clone(), self.gradients


@dataclass(frozen=True)
class GraphTuning:
    """CUDA graphs over the folded network; tasks of too many ways are tuned plainly."""

    backbone: Backbone  # of a ResNet18; its task parameters are its own weights
    precision: Precision = DEFAULT
    captured: bool = True  # False: the same passes on the same buffers, uncaptured (for tests without a GPU)
    name: str = "graph"
    passes: dict[Any, TuningPass] = field(default_factory=dict, init=False, compare=False, repr=False)
    lock: Any = field(default_factory=threading.RLock, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse what would be left as it is in silence."""
        if problem := cannot_tune(self.backbone):
            raise FewshiftError(f"no graphs to tune these weights: {problem}; take PlainTuning")

    @cached_property
    def net(self) -> TunedResNet:
        """The network in the precision's type."""
        return TunedResNet(self.backbone, activations(self.precision, self.backbone.dtype))

    @cached_property
    def weights(self) -> Flat:
        """The buffers that all passes read the weights from; those that move require gradients."""
        sites, names = set(self.backbone.sites), self.net.layout.names
        flat = self.net.layout.flat(self.backbone.frozen)
        return Flat(*(part.requires_grad_(sites.issuperset(n)) for part, n in zip(flat, names, strict=True)))

    @cached_property
    def gradients(self) -> Flat:
        """The buffers that all passes leave their gradients in."""
        return Flat(*(torch.zeros_like(part) for part in self.weights))

    @cached_property
    def wider(self) -> GraphTuning:
        """For what leaves the range of 16 bits, as a network does that is torn apart by too large a rate."""
        return GraphTuning(self.backbone, "tf32", self.captured)

    @cached_property
    def pool(self) -> Any:
        """Memory that all graphs share: no two run at once."""
        return torch.cuda.graph_pool_handle() if self.captured else None

    def tune(
        self, task: Task, rules: Sequence[Rule], steps: int, copies: Copies | None = None
    ) -> list[Trajectory]:
        """One descent after the other, on one graph; a rule sees three tensors and not some sixty."""
        if not rules:
            return []
        if task.way > MAX_WAY:
            say_once(f"there is no graph for tasks of more than {MAX_WAY} ways: they are tuned plainly")
            return PlainTuning(self.backbone).tune(task, rules, steps, copies)
        support, count = task.support, len(task.support.labels)
        # a query of its own, though the same images: a batch tells the two apart by identity
        asked = Asked(support, task.way, None if copies is None else Labelled(support.images, support.labels))
        with self.lock:  # the buffers hold one task at a time
            ready, start = self._loaded(asked), self._start()
            queries = None if copies is None else ready.images[count : 2 * count]
            ends = [
                descend_along(
                    partial(ready.along, queries, None if copies is None else copies()),
                    start,
                    rule(start),
                    steps,
                )
                for rule in rules
            ]
        return [
            replace(end, params=self._named(end.params))
            if self._fits(*end.params.values())
            else self.wider.tune(task, [rule], steps, copies)[0]
            for end, rule in zip(ends, rules, strict=True)
        ]

    def embed(self, params: TaskParams, images: Tensor) -> Tensor:  # (n, 3, h, w) -> (n, d)
        """Features under these weights, without gradients."""
        with torch.no_grad(), arithmetic(self.precision, products="float32"):
            found = by_chunks(partial(self.net, params), images, CHUNK)
        return found if self._fits(found) else self.wider.embed(params, images)

    def _start(self) -> TaskParams:
        """The weights that move as they are, end to end."""
        flat = self.net.layout.flat(self.backbone.frozen)._asdict()
        return {name: flat[name] for name, part in self.weights._asdict().items() if part.requires_grad}

    def _named(self, moved: TaskParams) -> TaskParams:
        """Moved weights by their full names."""
        whole = self.net.layout.named(Flat(**{**self.weights._asdict(), **moved}))
        return {site: whole[site] for site in self.backbone.sites}

    def _fits(self, *found: Tensor) -> bool:
        """Did these stay within what the precision can hold?"""
        return self.precision != "float16" or bool(
            torch.stack([part.sum() for part in found]).isfinite().all()
        )

    def _loaded(self, asked: Asked) -> TuningPass:
        """The pass for a task's size, captured if it is new, with the task in its buffers; hold the lock."""
        height, width = asked.support.images.shape[2:]
        size = padded_size(asked.images) or rounded(asked.images)
        key = size, height, width
        ready = kept_or_made(self.passes, key, partial(self._made, asked, *key))
        load_tasks([asked], ready.images, ready.targets)
        return ready

    def _made(self, asked: Asked, size: int, height: int, width: int) -> TuningPass:
        buffers = self.weights, self.gradients
        made = TuningPass(self.net, *buffers, size, (height, width), self.precision)
        if self.captured:
            load_tasks([asked], made.images, made.targets)
            made.graph = captured(made.run, self.pool, self.backbone.device)
        return made


def tuning_like(engine: Engine | None, backbone: Backbone) -> Tuning:
    """Tuning by graphs where an engine for adapters would use them on this network, else as it is written."""
    if cannot_tune(backbone):
        return PlainTuning(backbone)
    if engine is None:
        return GraphTuning(backbone) if backbone.device.type == "cuda" else PlainTuning(backbone)
    while isinstance(engine, AroundEngine):
        engine = engine.engine
    if isinstance(engine, GraphEngine):
        return GraphTuning(backbone, engine.precision, engine.captured)
    return PlainTuning(backbone)


def cannot_tune(backbone: Backbone) -> str | None:
    """Why there are no graphs for moving these weights of a network; None when there are."""
    net = backbone.net
    if type(net) is not ResNet18:
        return f"only ResNet18 is known, not {type(net).__name__}"
    if len({module.eps for module in net.modules() if isinstance(module, nn.BatchNorm2d)}) > 1:
        return "its norms have more than one eps"
    sites, names = set(backbone.sites), Layout(backbone).names
    unknown = sites.difference(*names)
    if unknown:
        return f"{min(unknown)} is no convolution's and no norm's"
    partly = [kind for kind in names if sites.intersection(kind) and not sites.issuperset(kind)]
    return f"{min(set(partly[0]) - sites)} stays while others of its kind move" if partly else None
