"""Tasks per second of Algorithm 1 as it runs: tasks gathered on the device, meta-gradients, optimizer steps.

fewshift bench meta --device cuda --width 64

The images are random. Tasks have at most 20 ways, 120 support images and 5 queries per class.
"""

from __future__ import annotations

from typing import Any, Literal

import torch

from fewshift.benchmarks.adapt import lived_in_net, machine, matrix_product_rate, now
from fewshift.data.pixels import PixelRule
from fewshift.data.protocol import Protocol
from fewshift.data.resident import ResidentDomain
from fewshift.data.spec import flat_spec
from fewshift.nets.backbone import freeze
from fewshift.nets.precision import DEFAULT, Precision
from fewshift.progress import Track, silent
from fewshift.training.distributed import ALONE
from fewshift.training.fastest import best_meta_gradients
from fewshift.training.graphed import GraphedBatches
from fewshift.training.metagradients import MetaGradients, arithmetic_of
from fewshift.training.preconditioner_learner import PreconditionerLearner
from fewshift.training.settings import InnerLevel, PreconditionerSettings
from fewshift.training.tasks import ResidentTasks

SMALL_TASKS = Protocol(max_way=20, max_support=120, max_query=5)
CLASSES, EACH = 50, 40  # of each domain


def run(
    device: str = "cpu",
    width: int = 64,
    *,
    image_size: int = 84,
    precision: Precision = DEFAULT,
    orders: tuple[Literal[1, 2], ...] = (1, 2),
    updates: int = 12,
    tasks_per_update: int = 16,
    domains: int = 8,
    protocol: Protocol = SMALL_TASKS,
    track: Track = silent,
) -> dict[str, Any]:
    """Each rate is that of `updates` updates, taken again after a first time that captured the graphs.

    A graph takes seconds, once for each shape of batch; a long run meets all shapes early.
    """
    tasks = ResidentTasks(
        {f"noise {d}": noise(f"noise {d}", image_size, device) for d in range(domains)}, protocol
    )
    backbone = freeze(lived_in_net(width, image_size).to(device))
    results = []
    for order in orders:
        way = best_meta_gradients(backbone, precision)
        inner = InnerLevel(order=order)
        settings = PreconditionerSettings(
            tasks_per_update=tasks_per_update, inner=inner, spectrum_every=10**9, validation_tasks=0
        )
        learner = PreconditionerLearner(backbone, tasks, settings, way, ALONE)
        if device.startswith("cuda"):
            torch.cuda.reset_peak_memory_stats(device)
        began = now(device)
        for step in track(range(updates), label=f"order {order}: warming up", total=updates):
            learner.update(step)
        warm = now(device)
        # The same tasks again: every graph is there, and nothing waits for the host.
        for step in track(range(updates), label=f"order {order}: timing", total=updates):
            learner.update(step)
        seconds = now(device) - warm
        row = {
            "order": order,
            "width": width,
            "engine": type(way).__name__,
            "precision": precision_at(way, order),
            "tasks_per_second": round(updates * tasks_per_update / seconds, 2),
            "updates": updates,
            "warm_up_seconds": round(warm - began, 2),
        }
        if device.startswith("cuda"):
            row["peak_mb"] = torch.cuda.max_memory_allocated(device) // 2**20
        results.append(row)
    shape = {"steps": InnerLevel().steps, "tasks_per_update": tasks_per_update}
    where = machine(device, matrix_product_rate(device))
    return {"machine": where, "settings": shape | protocol.to_dict(), "results": results}


def precision_at(way: MetaGradients, order: int) -> Precision:
    """What meta-gradients of this order take, which is not always what was asked for."""
    if isinstance(way, GraphedBatches):
        return (way.wide if order == 2 else way).precision
    return "bfloat16" if order == 1 and arithmetic_of(way) == {"precision": "bfloat16"} else "float32"


def noise(name: str, size: int, device: str) -> ResidentDomain:
    """A domain of random pictures, held on the device."""
    names = tuple(f"class {c}" for c in range(CLASSES))
    spec = flat_spec(name, names, (EACH,) * CLASSES, {"train": CLASSES - 10, "valid": 5, "test": 5})
    generator = torch.Generator(device=device).manual_seed(0)
    shape = (CLASSES * EACH, size, size, 3)
    levels = torch.randint(0, 256, shape, dtype=torch.uint8, device=device, generator=generator)
    rule = PixelRule(size, "protocol")
    return ResidentDomain(spec, rule, levels, {c: c * EACH for c in range(CLASSES)})
