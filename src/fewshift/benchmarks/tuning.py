"""Seconds that tuning a network itself takes, as it is written down and by graphs, in the same run.

fewshift bench tuning --device cuda --sizes 25,100,400 --json tuning.json

Steps of Adam as `fine_tune`, `norm_tune` and `pmf` take them, at one rate on random images; choosing the rate
is more of the same. Without a CUDA device the graphs' passes run uncaptured: it shows that they run, no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fewshift.benchmarks.adapt import lived_in_net, machine, make_task, matrix_product_rate, now
from fewshift.core.descent import Trajectory
from fewshift.methods.pmf import varied_copies
from fewshift.methods.tuned import adam_at
from fewshift.nets.backbone import freeze
from fewshift.nets.graph_tuning import GraphTuning
from fewshift.nets.precision import Precision
from fewshift.nets.tuning import Copies, PlainTuning, Rule, Tuning
from fewshift.nets.whole import every_weight, moving, norm_affine
from fewshift.progress import Track, silent
from fewshift.types import Task

METHODS = {"fine_tune": (every_weight, 3e-4), "norm_tune": (norm_affine, 3e-3), "pmf": (every_weight, 3e-4)}
PRECISIONS: tuple[Precision, ...] = ("tf32", "float16")


def run(
    sizes: Sequence[int] = (25, 100, 400),
    width: int = 64,
    image_size: int = 84,
    device: str = "cpu",
    *,
    steps: int = 40,
    repeats: int = 3,
    track: Track = silent,
) -> dict[str, Any]:
    """Each time is the best of `repeats`, after one run that is not counted: it captures graphs."""
    backbone = freeze(lived_in_net(width, image_size)).to(device)
    captured, rows = device.startswith("cuda"), []
    cases = [(name, size) for name in METHODS for size in sizes]
    for name, size in track(cases, label="methods and sizes", total=len(cases)):
        weights, rate = METHODS[name]
        whole = moving(backbone, weights(backbone.net))
        task, _ = make_task(size, image_size, device)
        copies = varied_copies(task, 0) if name == "pmf" else None
        row: dict[str, Any] = {"method": name, "support": size, "steps": steps}
        engines: dict[str, Tuning] = {"plain": PlainTuning(whole)}
        engines |= {precision: GraphTuning(whole, precision, captured) for precision in PRECISIONS}
        for label, engine in engines.items():
            timed = [_timed(engine, task, adam_at(rate), steps, copies, device) for _ in range(repeats + 1)]
            row[f"{label}_seconds"] = round(min(seconds for seconds, _ in timed[1:]), 4)
            row[f"{label}_last_loss"] = round(float(timed[-1][1].losses[-1]), 4)
        for precision in PRECISIONS:
            row[f"plain_by_{precision}"] = round(row["plain_seconds"] / row[f"{precision}_seconds"], 2)
        rows.append(row)
    where = machine(device, matrix_product_rate(device, 0 if captured else 512))
    settings = {"width": width, "image_size": image_size, "repeats": repeats, "captured": captured}
    return {"machine": where, "settings": settings, "results": rows}


def table(outcome: dict[str, Any]) -> str:
    """The results for people."""
    lines = [f"tuning by {outcome['results'][0]['steps']} steps on {outcome['machine']['device']}, seconds"]
    lines += [
        f"{row['method']:<10} {row['support']:>4} images  plain {row['plain_seconds']:>8.3f}"
        + "".join(
            f"   {p} {row[f'{p}_seconds']:>8.3f} ({row[f'plain_by_{p}']:.1f} times as fast)"
            for p in PRECISIONS
        )
        for row in outcome["results"]
    ]
    return "\n".join(lines)


def _timed(
    engine: Tuning, task: Task, rule: Rule, steps: int, copies: Copies | None, device: str
) -> tuple[float, Trajectory]:
    start = now(device)
    (end,) = engine.tune(task, [rule], steps, copies)
    return now(device) - start, end
