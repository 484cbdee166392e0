"""What a rule that chooses would have been worth, from the measurements of `own_grid`.

fewshift bench own-rules grid-2.npz grid-5.npz --candidates "certainty P 1 0.05; certainty P 0.5 0.05"
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias
from zipfile import BadZipFile

import numpy as np
import torch
from numpy.typing import NDArray

from fewshift.errors import FewshiftError
from fewshift.estimator.choosing import clearly_better
from fewshift.estimator.temperature import calibrated_losses
from fewshift.estimator.trials import HeldOut

END = "20"  # steps after which candidates are compared


@dataclass(frozen=True)
class Measured:
    """One task: what each candidate gained on its queries, and each held-out image's loss under it."""

    domain: str
    role: str
    gains: NDArray[np.float64]  # (c,) points over the frozen network
    losses: Sequence[torch.Tensor]  # (h,) of each candidate
    frozen: torch.Tensor  # (h,)


Rule: TypeAlias = Callable[[Measured], int | None]  # a candidate, or None for the frozen network


def read(path: Path, candidates: Sequence[str]) -> list[Measured]:
    """The tasks of a file, with these candidates in this order."""
    try:
        with np.load(path) as file:
            found = {name: file[name] for name in file.files}
    except (OSError, ValueError, BadZipFile, AttributeError):  # AttributeError: one array, not several
        raise FewshiftError(
            f"{path}: this is no file of arrays: give one that bench own-grid wrote"
        ) from None
    if "held" not in found:
        raise FewshiftError(f"{path}: with one image a class nothing is held out: give a file of more shots")
    known = found["candidates"].tolist()
    if missing := [name for name in candidates if name not in known]:
        raise FewshiftError(f"{path}: it has no candidate {missing[0]!r}, only {'; '.join(known)}")
    places = [known.index(name) for name in candidates]
    stop, half = (found[name].astype(str).tolist().index(END) for name in ("stops", "half_stops"))
    right = found["query"][:, places, stop, 0].astype(float) - found["frozen"][:, :1].astype(float)
    return [
        Measured(
            str(found["domain"][t]),
            str(found["role"][t]),
            100 * right[t],
            [_losses(found["held"][t, place, half], found["held_labels"][t]) for place in places],
            _losses(found["held_frozen"][t], found["held_labels"][t]),
        )
        for t in range(len(right))
    ]


def _losses(cosines: NDArray[Any], labels: NDArray[Any]) -> torch.Tensor:
    known = torch.from_numpy(labels)
    there = torch.from_numpy(cosines.astype(np.float32))
    return calibrated_losses(HeldOut(there, known, torch.arange(len(known))))


def lowest_loss(task: Measured) -> int | None:
    """The candidate whose held-out loss is lowest; none where the frozen network's is."""
    means = [float(losses.mean()) for losses in (task.frozen, *task.losses)]
    best = int(np.argmin(means))
    return best - 1 if best else None


def first_unless_worse(task: Measured, clear: float) -> int | None:
    """The first candidate, unless the frozen network is better by so many standard errors."""
    return None if clearly_better(task.frozen, task.losses[0], clear) else 0


def rules(candidates: Sequence[str]) -> dict[str, Rule]:
    """Always one candidate; the best on held-out images; the first unless they object."""
    always: dict[str, Rule] = {f"always {name}": partial(_always, k) for k, name in enumerate(candidates)}
    return always | {
        "lowest held-out loss": lowest_loss,
        **{f"first, unless worse by {c:g}": partial(first_unless_worse, clear=c) for c in (0.0, 1.0, 2.0)},
    }


def _always(place: int, task: Measured) -> int:
    return place


def compare(tasks: Sequence[Measured], wanted: Mapping[str, Rule]) -> dict[str, dict[str, float]]:
    """Mean gains over the frozen network in points, each domain alike."""
    table = {}
    for name, rule in wanted.items():
        chosen = [rule(task) for task in tasks]
        gains = [0.0 if k is None else float(t.gains[k]) for k, t in zip(chosen, tasks, strict=True)]
        by: dict[str, list[float]] = {}
        for task, gain in zip(tasks, gains, strict=True):
            by.setdefault(task.domain, []).append(gain)
        means = {domain: float(np.mean(each)) for domain, each in by.items()}
        table[name] = {
            "gain": round(float(np.mean(list(means.values()))), 2),
            "worst": round(min(means.values()), 2),
            "frozen": round(float(np.mean([k is None for k in chosen])), 3),
        }
    return table


def agreement(tasks: Sequence[Measured]) -> float:
    """The correlation of what held-out images say of the first candidate with what it gained."""
    said = [float((task.frozen - task.losses[0]).mean()) for task in tasks]
    return float(np.corrcoef(said, [task.gains[0] for task in tasks])[0, 1])
