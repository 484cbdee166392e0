"""Features of many small tasks at once, each under parameters of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from fewshift.nets.cells import Cells, Shape
from fewshift.nets.engine import Engine
from fewshift.nets.graph import GraphEngine
from fewshift.nets.precision import arithmetic
from fewshift.nets.task_net import TaskNet
from fewshift.types import TaskParams


def embedder(
    engine: Engine, images: Tensor
) -> Callable[[Sequence[TaskParams]], Sequence[Tensor]]:  # (tasks, n, 3, h, w); -> (n, d) of each task
    """Features of these images, each task's under parameters of its own; all tasks at once on a GPU."""
    if not isinstance(engine, GraphEngine):
        return lambda many: [engine.embed(params, x) for params, x in zip(many, images, strict=True)]
    count, each = images.shape[:2]
    cells = Cells(Shape(count, count, each), images.device)
    cells.assign([1] * count)
    net = TaskNet(engine.net, cells)
    last, usual = engine.backbone.sites[-1], engine.backbone.init()
    frozen = {site: value if site == last else torch.zeros_like(value) for site, value in usual.items()}
    with torch.no_grad(), arithmetic(engine.precision):
        head = net.head(images.flatten(0, 1))

    def embed(many: Sequence[TaskParams]) -> Sequence[Tensor]:
        stacks = engine.net.stacks
        with engine.lock, torch.no_grad(), arithmetic(engine.precision):
            values = stacks.zeros(count, engine.net.last)
            stacks.fill(values, [frozen | params for params in many])
            net.set(values)
            pooled = net.forward(head, keep=False)[0]
        with torch.no_grad(), arithmetic("float32"):
            maps = torch.stack([(frozen | params)[last] for params in many])
            return list(pooled.view(count, each, -1) @ maps.mT)

    return embed
