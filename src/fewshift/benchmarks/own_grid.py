"""How far to adapt on a handful of images: many starts and rates on small validation tasks, at every stop.

Each task is adapted as a whole, which says what a choice is worth on its queries, and on each half of its
support set, which says what a user could know. Everything is kept, so that rules that choose can be compared
afterwards without adapting again. Tasks of equal size run side by side.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from fewshift.benchmarks.embed_many import embedder
from fewshift.benchmarks.own_tasks import OwnTask, draw, ready, sources
from fewshift.core.centroids import cosine_logits, prototypes
from fewshift.core.precond import blend_sites
from fewshift.core.starts import task_start
from fewshift.core.updates import Preconditioned, site_rates
from fewshift.estimator.kits import Opened, open_kit
from fewshift.estimator.trials import Fold, halves
from fewshift.methods.build import coefficients_of, start_share
from fewshift.methods.rates import certainty
from fewshift.nets.engine import Engine
from fewshift.nets.kit import Kit
from fewshift.progress import Track, silent
from fewshift.types import Labelled, Preconditioner, Split, Task, TaskParams

STOPS = (0, 2, 5, 10, 20, 40)
SCALES = (5.0, 7.0, 10.0, 14.0, 20.0, 28.0, 40.0)  # of the cosine, for the queries' cross-entropy
HALF_STOPS = (0, 2, 5, 10, 20)  # of trials on halves: who is ahead then is ahead at the end


@dataclass(frozen=True)
class Candidate:
    """Where to start and how fast to go."""

    start: str  # "usual", or learned ones: "common", "own" (the blend of domains) or "certainty" between them
    preconditioned: bool
    adapters: float
    last: float

    @property
    def name(self) -> str:
        """A short name, such as `certainty P 0.25 0.05`."""
        return f"{self.start} {'P' if self.preconditioned else 'I'} {self.adapters:g} {self.last:g}"


def candidate(text: str) -> Candidate:
    """The candidate of this name."""
    start, matrix, adapters, last = text.split()
    return Candidate(start, matrix == "P", float(adapters), float(last))


@dataclass(frozen=True)
class _Facts:
    """What a task's images say before anything moves."""

    coefficients: Tensor | None
    share: float
    matrices: dict[str, Preconditioner | None]  # "P" and "I"


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
        "stops": np.array(STOPS),
        "scales": np.array(SCALES),
        "half_stops": np.array(HALF_STOPS),
        "shot": np.array(shot),
    }


def _round(
    opened: Opened, tasks: Sequence[OwnTask], candidates: Sequence[Candidate]
) -> dict[str, NDArray[Any]]:
    device, kit = opened.device, opened.kit
    facts = [_facts(kit, task) for task in tasks]
    starts = [[_start(kit, c, f) for f in facts] for c in candidates]
    rules = [[_rule(c, f, kit) for f in facts] for c in candidates]
    labels, asked = tasks[0].labels.to(device), tasks[0].asked.to(device)
    whole = torch.stack([torch.cat([task.support, task.query]) for task in tasks])
    known = len(labels)

    def queries(features: Tensor) -> Tensor:  # (n, d) -> (1 + scales,)
        centres = prototypes(features[:known], labels, tasks[0].way)
        return _measured(cosine_logits(features[known:], centres, 1.0), asked)

    supports = [Task(Labelled(task.support, labels), task.way) for task in tasks]
    embed_whole = embedder(opened.engine, whole)
    result = {
        "domain": np.array([task.domain for task in tasks]),
        "role": np.array([task.role for task in tasks]),
        "index": np.array([task.index for task in tasks]),
        "coefficients": np.stack([_numbers(f.coefficients, len(kit.domains)) for f in facts]),
        "certainty": np.array(
            [np.nan if f.coefficients is None else certainty(f.coefficients) for f in facts]
        ),
        "frozen": _along(embed_whole([{} for _ in tasks]), queries),
        "query": _descents(opened.engine, supports, starts, rules, STOPS, embed_whole, queries),
    }
    folds = halves(tasks[0].labels, 0)
    if folds is None:
        return result
    embed_support = embedder(opened.engine, whole[:, :known])
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
    params = [p for row in starts for p in row]
    updates = [rule for row in rules for rule in row]
    found = []
    for stop in stops:
        if stop > taken:
            params = [t.params for t in engine.adapt_many([*tasks] * count, params, updates, stop - taken)]
            taken = stop
        rows = [params[k * len(tasks) : (k + 1) * len(tasks)] for k in range(count)]
        found.append(np.stack([_along(embed(row), measure) for row in rows], axis=1))
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


@torch.no_grad()
def _facts(kit: Kit, task: OwnTask) -> _Facts:
    there = coefficients_of(kit)(task.support)
    own: Preconditioner | None = None
    if task.support.is_cuda:  # a matrix in either case, so that one graph serves both
        own = {site: torch.eye(len(v), device=v.device) for site, v in kit.backbone.init().items()}
    if there is None:
        return _Facts(None, 0.0, {"I": own, "P": own})
    known = Task(Labelled(task.support, task.labels), task.way)
    share = start_share(kit, "tsp_start", oracle=False)(known, there)
    blended = own if kit.preconditioners is None else dict(blend_sites(there, kit.preconditioners.matrices()))
    return _Facts(there, share, {"I": own, "P": blended})


def _start(kit: Kit, which: Candidate, facts: _Facts) -> TaskParams:
    usual = kit.backbone.init()
    if which.start == "usual" or facts.coefficients is None:
        return usual
    share = {"common": 0.0, "own": 1.0, "certainty": facts.share}[which.start]
    return task_start(usual, kit.starts, facts.coefficients, share)


def _rule(which: Candidate, facts: _Facts, kit: Kit) -> Preconditioned:
    rates = site_rates(kit.backbone.sites, which.adapters, which.last, last_site=kit.backbone.sites[-1])
    return Preconditioned(facts.matrices["P" if which.preconditioned else "I"], rates)


def _numbers(coefficients: Tensor | None, count: int) -> NDArray[np.float32]:
    return (torch.zeros(count) if coefficients is None else coefficients.float().cpu()).numpy()


def summary(found: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """Mean gain over the frozen network in points, by role, candidate and stop."""
    right, frozen = found["query"][..., 0].astype(float), found["frozen"][..., 0].astype(float)
    gains = 100 * (right - frozen[:, None, None])
    table: dict[str, Any] = {}
    for role in np.unique(found["role"]).tolist():
        mine = found["role"] == role
        table[role] = {
            "tasks": int(mine.sum()),
            "ncc": round(100 * float(frozen[mine].mean()), 2),
            "gain": {
                str(name): dict(
                    zip(map(str, STOPS), gains[mine][:, k].mean(0).round(2).tolist(), strict=True)
                )
                for k, name in enumerate(found["candidates"])
            },
        }
    return table


def write(found: dict[str, NDArray[Any]], path: Path) -> None:
    """Everything in one compressed file of arrays."""
    with path.open("wb") as file:
        np.savez_compressed(file, **found)  # type: ignore[arg-type]
