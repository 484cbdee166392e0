"""Seconds a task takes by GAP and by TSP, on the same images in the same run.

fewshift bench gap --size 350 --device cuda --json gap.json

The TSP paper gives 14.2 s per task for GAP and 1.1 s for TSP on one RTX 3090: 13 times as much. Both methods
run here as they are evaluated: TSP takes 40 steps on its adapters, by the engine that is written down
("plain", as public code does it) and by the fastest; GAP takes 10 steps on all kernels, with an SVD of every
kernel's gradient, with eigenvectors instead (the same numbers), and in its approximate form. Nothing is
trained: time does not depend on what was learned.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fewshift.benchmarks.adapt import lived_in_net, machine, make_task, matrix_product_rate, now
from fewshift.core.precond import initial_preconditioners
from fewshift.core.rules import RULES
from fewshift.methods import METHODS
from fewshift.methods.proto_maml import ProtoMaml
from fewshift.nets.backbone import freeze
from fewshift.nets.choice import choose_engine
from fewshift.nets.kit import Kit
from fewshift.nets.set_encoder import DatasetClassifier
from fewshift.progress import Track, silent
from fewshift.training.maml import MamlSettings, maml_part, meta_learned
from fewshift.types import Method

DOMAINS = tuple(f"domain {number}" for number in range(8))
BASELINES = ("tsp", "tsp_plain")


def run(
    size: int = 350,
    width: int = 64,
    image_size: int = 84,
    device: str = "cpu",
    *,
    tsp_steps: int = 40,
    gap_steps: int = 10,
    repeats: int = 3,
    track: Track = silent,
) -> dict[str, Any]:
    """Each time is the best of `repeats`, after one run that is not counted, taken in turns."""
    task, query = make_task(size, image_size, device)
    methods = _methods(untrained_kit(width, image_size).to(device), tsp_steps, gap_steps)
    seconds = {name: float("inf") for name in methods}
    turns = [(repeat, name) for repeat in range(repeats + 1) for name in methods]
    for repeat, name in track(turns, label="tasks", total=len(turns)):
        start = now(device)
        methods[name].adapt(task)(query.images)
        if repeat:
            seconds[name] = min(seconds[name], now(device) - start)
    steps = {name: tsp_steps if name.startswith("tsp") else gap_steps for name in methods}
    rows = [
        {
            "method": name,
            "steps": steps[name],
            "seconds_a_task": round(took, 4),
            "milliseconds_a_step": round(1000 * took / steps[name], 3),
            **{f"times_{other}": round(took / seconds[other], 2) for other in BASELINES},
        }
        for name, took in seconds.items()
    ]
    settings = {"support": size, "query": len(query.labels), "width": width, "image_size": image_size}
    where = machine(device, matrix_product_rate(device, 0 if device.startswith("cuda") else 512))
    return {"machine": where, "settings": {**settings, "repeats": repeats}, "results": rows}


def untrained_kit(width: int, image_size: int) -> Kit:
    """All that the methods of this comparison need, as it is before training, for eight domains."""
    backbone = freeze(lived_in_net(width, image_size))
    sizes = {site: len(value) for site, value in backbone.init().items()}
    kit = Kit(
        backbone,
        preconditioners=initial_preconditioners(DOMAINS, sizes),
        classifier=DatasetClassifier(len(DOMAINS)).eval().requires_grad_(False),
    )
    parts = {}
    for name in ("sgd", "gap", "gap-approximate"):
        settings = MamlSettings(rule=name)
        parts[RULES[name].method] = maml_part(backbone, settings, meta_learned(backbone, settings).start())
    return kit.with_(parts=parts)


def table(outcome: dict[str, Any]) -> str:
    """The results for people."""
    lines = [f"{outcome['settings']['support']} support images on {outcome['machine']['device']}"]
    lines += [
        f"{row['method']:<16} {row['steps']:>3} steps {row['seconds_a_task']:>9.3f} s a task "
        f"{row['milliseconds_a_step']:>9.1f} ms a step {row['times_tsp_plain']:>7.2f} x plain TSP "
        f"{row['times_tsp']:>7.2f} x TSP"
        for row in outcome["results"]
    ]
    return "\n".join(lines)


def _methods(kit: Kit, tsp_steps: int, gap_steps: int) -> dict[str, Method]:
    found: dict[str, Method] = {
        "tsp": replace(METHODS["tsp"](kit), steps=tsp_steps),  # type: ignore[type-var]
        "tsp_plain": replace(METHODS["tsp"](kit, choose_engine(kit.backbone, "plain")), steps=tsp_steps),  # type: ignore[type-var]
    }
    for name in ("proto_maml", "gap", "gap_eigen", "gap_approximate"):
        method = METHODS[name](kit)
        assert isinstance(method, ProtoMaml)
        found[name] = replace(method, steps=gap_steps)
    return found
