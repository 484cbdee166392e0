"""How far to adapt on a handful of images: many starts and rates on small validation tasks, at every stop.

Each task is adapted as a whole, which says what a choice is worth on its queries, and on each half of its
support set, which says what a user could know. Everything is kept, so that rules that choose can be compared
afterwards without adapting again. Tasks of equal size run side by side.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from fewshift.benchmarks.own_candidates import Candidate, facts_of, rule_of, start_of
from fewshift.benchmarks.own_tasks import OwnTask, draw, ready, sources
from fewshift.core.centroids import cosine_logits, prototypes
from fewshift.core.starts import part_way
from fewshift.core.updates import Preconditioned
from fewshift.estimator.kits import Opened, open_kit
from fewshift.estimator.trials import Fold, halves
from fewshift.methods.rates import certainty
from fewshift.nets.engine import Engine
from fewshift.progress import Track, silent
from fewshift.types import Labelled, Split, Task, TaskParams

STOPS = (0, 2, 5, 10, 20, 40)
SCALES = (5.0, 7.0, 10.0, 14.0, 20.0, 28.0, 40.0)  # of the cosine, for the queries' cross-entropy
MIXED_AT = 20  # steps after which parameters part of the way back to the frozen network are measured, too
MIXES = (0.25, 0.5, 0.75)
NAMED_STOPS = ("0", "2", "5", "10", "20", *(f"20x{share:g}" for share in MIXES), "40")
HALF_STOPS = (0, 2, 5, 10, 20)  # of trials on halves: who is ahead then is ahead at the end


def run(
    records: Path,
    kit: str | None,
    candidates: Sequence[Candidate],
    shot: int,
    seconds: float,
    device: str = "auto",
    split: Split = "valid",
    names: Sequence[str] = (),
    each: int = 1,
    rounds: int = 10**6,
    seed: int = 0,
    track: Track = silent,
) -> dict[str, NDArray[Any]]:
    """Rounds of `each` tasks of every domain until the time is over; arrays by name, tasks first."""
    began = time.perf_counter()
    opened = open_kit(kit, device, "auto", True)
    found = sources(records, split, opened, names, track)
    opened = ready(opened)
    parts: list[dict[str, NDArray[Any]]] = []
    longest = 0.0
    for number in track(range(rounds), label=f"own grid, {shot} shots", total=rounds):
        now = time.perf_counter()
        if parts and now - began + longest > seconds:
            break
        tasks = [draw(s, number * each + i, shot, seed) for i in range(each) for s in found]
        parts.append(_round(opened, tasks, candidates))
        if number:  # the first one captures graphs
            longest = max(longest, time.perf_counter() - now)
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return joined | {
        "candidates": np.array([c.name for c in candidates]),
        "stops": np.array(NAMED_STOPS),
        "scales": np.array(SCALES),
        "half_stops": np.array(NAMED_STOPS[:-1]),
        "shot": np.array(shot),
    }


def _round(
    opened: Opened, tasks: Sequence[OwnTask], candidates: Sequence[Candidate]
) -> dict[str, NDArray[Any]]:
    device, kit = opened.device, opened.kit
    facts = [facts_of(kit, task) for task in tasks]
    shares = [f.coefficients for f in facts]
    starts = [[start_of(kit, c, f) for f in facts] for c in candidates]
    rules = [[rule_of(c, f, kit) for f in facts] for c in candidates]
    labels, asked = tasks[0].labels.to(device), tasks[0].asked.to(device)
    whole = torch.stack([torch.cat([task.support, task.query]) for task in tasks])
    known = len(labels)

    def queries(features: Tensor) -> Tensor:  # (n, d) -> (1 + scales,)
        centres = prototypes(features[:known], labels, tasks[0].way)
        return _measured(cosine_logits(features[known:], centres, 1.0), asked)

    supports = [Task(Labelled(task.support, labels), task.way) for task in tasks]
    embed_whole = partial(opened.engine.embed_many, images=list(whole))
    result = {
        "domain": np.array([task.domain for task in tasks]),
        "role": np.array([task.role for task in tasks]),
        "index": np.array([task.index for task in tasks]),
        "coefficients": np.stack(
            [np.zeros(len(kit.domains), np.float32) if c is None else c.float().cpu().numpy() for c in shares]
        ),
        "certainty": np.array([np.nan if c is None else certainty(c) for c in shares]),
        "frozen": _along(embed_whole([{} for _ in tasks]), queries),
        "query": _descents(opened.engine, supports, starts, rules, STOPS, embed_whole, queries),
    }
    folds = halves(tasks[0].labels, 0)
    if folds is None:
        return result
    embed_support = partial(opened.engine.embed_many, images=list(whole[:, :known]))
    frozen, held = [], []
    for fold in folds:

        def held_out(features: Tensor, fold: Fold = fold) -> Tensor:
            centres = prototypes(features[fold.kept], labels[fold.kept.to(device)], tasks[0].way)
            return cosine_logits(features[fold.held], centres, 1.0)

        kept = [Task(Labelled(t.support[fold.kept], labels[fold.kept.to(device)]), t.way) for t in tasks]
        frozen.append(_along(embed_support([{} for _ in tasks]), held_out))
        held.append(_descents(opened.engine, kept, starts, rules, HALF_STOPS, embed_support, held_out))
    places = torch.cat([fold.held for fold in folds])
    return result | {
        "held_labels": np.stack([tasks[0].labels[places].numpy()] * len(tasks)),
        "held_frozen": np.concatenate(frozen, axis=1),
        "held": np.concatenate(held, axis=3),
    }


def _descents(
    engine: Engine,
    tasks: Sequence[Task],
    starts: Sequence[Sequence[TaskParams]],
    rules: Sequence[Sequence[Preconditioned]],
    stops: Sequence[int],
    embed: Callable[[Sequence[TaskParams]], Sequence[Tensor]],
    measure: Callable[[Tensor], Tensor],
) -> NDArray[np.float16]:  # (tasks, candidates, stops, ...)
    count, taken = len(starts), 0
    usual = engine.backbone.init()
    params = [p for row in starts for p in row]
    updates = [rule for row in rules for rule in row]
    found = []
    for stop in stops:
        if stop > taken:
            params = [t.params for t in engine.adapt_many([*tasks] * count, params, updates, stop - taken)]
            taken = stop
        rows = [params[k * len(tasks) : (k + 1) * len(tasks)] for k in range(count)]
        found.append(np.stack([_along(embed(row), measure) for row in rows], axis=1))
        if stop != MIXED_AT:
            continue
        for share in MIXES:
            mixed = [[part_way(usual, params, share) for params in row] for row in rows]
            found.append(np.stack([_along(embed(row), measure) for row in mixed], axis=1))
    return np.stack(found, axis=2)


def _measured(cosines: Tensor, labels: Tensor) -> Tensor:  # (q, way), (q,) -> (1 + scales,)
    """Accuracy, then the mean cross-entropy at every scale."""
    right = (cosines.argmax(1) == labels).float().mean()
    return torch.stack([right, *(F.cross_entropy(scale * cosines, labels) for scale in SCALES)])


def _along(
    features: Sequence[Tensor], measure: Callable[[Tensor], Tensor]
) -> NDArray[np.float16]:  # (tasks, ...)
    there = torch.stack([measure(each) for each in features])
    return there.half().cpu().numpy()


def summary(found: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """Mean gain over the frozen network in points, by role, candidate and stop; after 20 steps by domain."""
    right, frozen = found["query"][..., 0].astype(float), found["frozen"][..., 0].astype(float)
    gains = 100 * (right - frozen[:, None, None])
    names, stops = (found[name].astype(str).tolist() for name in ("candidates", "stops"))
    later = gains[:, :, stops.index(str(MIXED_AT))]
    table: dict[str, Any] = {}
    for role in np.unique(found["role"]).tolist():
        mine = found["role"] == role
        table[role] = {
            "tasks": int(mine.sum()),
            "ncc": round(100 * float(frozen[mine].mean()), 2),
            "gain": {
                name: dict(zip(stops, gains[mine][:, k].mean(0).round(2).tolist(), strict=True))
                for k, name in enumerate(names)
            },
            "domains": {
                str(domain): dict(
                    zip(names, later[found["domain"] == domain].mean(0).round(2).tolist(), strict=True)
                )
                for domain in dict.fromkeys(found["domain"][mine].tolist())
            },
        }
    return table


def write(found: dict[str, NDArray[Any]], path: Path) -> None:
    """Everything in one compressed file of arrays."""
    with path.open("wb") as file:
        np.savez_compressed(file, **found)  # type: ignore[arg-type]
