"""Is a fit on a handful of images better than none? Small tasks, fit against ncc on each.

fewshift bench own-images --records DIR --kit KIT --tasks 10 --shots 1,2,5,10 --split valid
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from fewshift.benchmarks.even_batches import EvenBatches, most_together
from fewshift.benchmarks.own_tasks import WAY, OwnTask, draw, ready, sources
from fewshift.estimator.adapting import Support, Tools, adapt
from fewshift.estimator.choosing import check_parameters
from fewshift.estimator.fitted import Fitted
from fewshift.estimator.kits import Opened, open_kit
from fewshift.estimator.unknown import places_between
from fewshift.nets.engine import Engine
from fewshift.nets.graph import GraphEngine
from fewshift.nets.together import Together
from fewshift.progress import Track, silent
from fewshift.types import Split

ON_ALL_SITES = ("tsp", "tsa", "gd")  # what a graph can do
# of the cosine, tried on queries
SCALES = (4.0, 5.0, 6.0, 7.0, 8.5, 10.0, 12.0, 14.0, 17.0, 20.0, 28.0, 40.0)


def run(
    records: Path,
    kit: str | None = None,
    method: str = "tsp",
    tasks: int = 10,
    shots: Sequence[int] = (1, 2, 5, 10),
    device: str = "auto",
    split: Split = "test",
    seed: int = 0,
    domains: Sequence[str] = (),
    track: Track = silent,
    seconds: float = math.inf,
) -> dict[str, Any]:
    """`tasks` tasks of every domain with each number of shots: one row per task, and the differences.

    After so many seconds no more fits are begun; the rows say how many there were.
    """
    began = time.perf_counter()
    check_parameters(method, "auto", seed)
    opened = open_kit(kit, device, "auto", True)
    found = sources(records, split, opened, domains, track)
    opened = ready(opened)
    jobs = [(source, index, shot) for shot in shots for index in range(tasks) for source in found]
    together = Together(EvenBatches(opened.engine))
    rows: list[dict[str, Any]] = []
    bar = iter(track(range(len(jobs) + 1), label=f"fits with {opened.name}", total=len(jobs)))
    next(bar)
    while len(rows) < len(jobs) and (not rows or time.perf_counter() - began < seconds):
        group = jobs[len(rows) : len(rows) + _abreast(opened, method, jobs[len(rows)][2])]
        group = [job for job in group if job[2] == group[0][2]]
        rows += _rows(opened, together, method, seed, [draw(*job, seed) for job in group])
        for _ in group:
            next(bar)
    settings = {"kit": opened.name, "method": method, "way": WAY, "shots": list(shots), "tasks": tasks}
    return {
        "settings": settings | {"split": split, "seed": seed, "device": opened.device.type},
        **summaries(rows),
        "tasks": rows,
    }


def _abreast(opened: Opened, method: str, shot: int) -> int:
    """How many fits run at a time: as many as fill a batch of graphs, else one."""
    graphs = isinstance(opened.engine, GraphEngine) and method in ON_ALL_SITES
    return most_together(WAY * shot) if graphs else 1


def _rows(
    opened: Opened, together: Together, method: str, seed: int, tasks: Sequence[OwnTask]
) -> list[dict[str, Any]]:
    if _abreast(opened, method, tasks[0].shot) == 1:
        return [_row(opened, opened.engine, method, seed, task) for task in tasks]
    return together.each([partial(_row, opened, together, method, seed, task) for task in tasks])


def _row(opened: Opened, engine: Engine, method: str, seed: int, task: OwnTask) -> dict[str, Any]:
    names = tuple(f"{place}" for place in range(len(task.labels)))
    support = Support(task.support, task.labels, names, tuple(range(task.way)))
    began = time.perf_counter()
    fit = adapt(Tools(opened.kit, engine, method, "auto", seed), support)
    seconds = time.perf_counter() - began
    ncc = adapt(Tools(opened.kit, engine, "ncc", "auto", seed), support)
    cosines, plain = (_cosines(fitted, engine, task) for fitted in (fit, ncc))
    shares = fit.probabilities(cosines)
    asked = task.asked
    return {
        "domain": task.domain,
        "role": task.role,
        "index": task.index,
        "shot": task.shot,
        "fit": float((cosines.argmax(1) == asked).double().mean()),
        "ncc": float((plain.argmax(1) == asked).double().mean()),
        "cross_entropy": float(-shares[torch.arange(len(asked)), asked].clamp_min(1e-12).log().mean()),
        "cross_entropy_by_scale": [
            round(float(F.cross_entropy(scale * cosines, asked)), 4) for scale in SCALES
        ],
        "confidence": float(shares.max(1).values.mean()),
        "unknown": float((fit.familiar.scores(cosines) > fit.familiar.limit).double().mean()),
        "between": _between(cosines, fit),
        "between_ncc": _between(plain, ncc),
        "steps": fit.settings.steps,
        "rates": list(fit.settings.rates),
        "why": fit.settings.why,
        "seconds": round(seconds, 3),
    }


def _cosines(fitted: Fitted, engine: Engine, task: OwnTask) -> torch.Tensor:  # (q, way)
    return fitted.cosines(engine.embed(fitted.params, task.query)).cpu()


def _between(cosines: torch.Tensor, fitted: Fitted) -> list[float]:
    """Mean and spread of the queries' places between prototypes."""
    places = places_between(cosines, fitted.prototypes.cpu())
    return [float(places.mean()), float(places.std(correction=0))]


def summaries(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """By domain, by number of shots, by both, and of all."""
    return {
        "domains": _by(rows, lambda row: str(row["domain"])),
        "shots": _by(rows, lambda row: str(row["shot"])),
        "each": _by(rows, lambda row: f"{row['domain']} {row['shot']}"),
        "all": summary(rows),
    }


def _by(
    rows: Sequence[dict[str, Any]], name: Callable[[dict[str, Any]], str]
) -> dict[str, dict[str, float | None]]:
    names = list(dict.fromkeys(name(row) for row in rows))
    return {each: summary([row for row in rows if name(row) == each]) for each in names}


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, float | None]:
    """Means in per cent, and the paired difference with its 95% interval."""
    fit, ncc = (100 * np.array([row[name] for row in rows]) for name in ("fit", "ncc"))
    gain = fit - ncc
    confidence = 100 * float(np.mean([r["confidence"] for r in rows]))
    return {
        "tasks": len(rows),
        "fit": round(float(fit.mean()), 2),
        "ncc": round(float(ncc.mean()), 2),
        "difference": round(float(gain.mean()), 2),
        "interval": _interval(gain),
        "confidence_less_accuracy": round(confidence - float(fit.mean()), 2),
        "cross_entropy": round(float(np.mean([row["cross_entropy"] for row in rows])), 4),
        "called_unknown": round(100 * float(np.mean([row["unknown"] for row in rows])), 2),
    }


def table(outcome: dict[str, Any]) -> str:
    """The differences for people: one row per domain, with each number of shots in a column."""
    shots = list(outcome["shots"])
    heads = "".join(f"{k + ' shot' + 's' * (k != '1'):>15}" for k in shots)
    lines = [f"{'domain':<16} {'tasks':>5} {'fit':>7} {'ncc':>7}   difference{heads}"]
    for name, row in {**outcome["domains"], "all": outcome["all"]}.items():
        cells = [outcome["shots"][k] if name == "all" else outcome["each"].get(f"{name} {k}") for k in shots]
        lines.append(
            f"{name:<16} {row['tasks']:>5} {row['fit']:>7.2f} {row['ncc']:>7.2f} {_gain(row)}"
            + "".join(f"{_gain(cell) if cell else '':>15}" for cell in cells)
        )
    return "\n".join(lines)


def _gain(row: dict[str, Any]) -> str:
    interval = row["interval"]
    return f"{row['difference']:+6.2f}" + (" " * 7 if interval is None else f" ± {interval:4.2f}")


def _interval(gain: NDArray[np.float64]) -> float | None:
    """Half of the 95 % interval; one task has none."""
    return round(1.96 * float(gain.std(ddof=1)) / len(gain) ** 0.5, 2) if len(gain) > 1 else None
