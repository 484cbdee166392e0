"""Does a faster precision cost accuracy? The same tasks in float32 and in others, difference by difference.

fewshift bench gate --kit KIT --records RECORDS --tasks 200
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from fewshift.errors import FewshiftError
from fewshift.evaluation.evaluate import evaluate
from fewshift.methods import METHODS
from fewshift.nets.engine import Engine, FoldedEngine
from fewshift.nets.folded_resnet import cannot_fold
from fewshift.nets.frozen_net import cannot_graph
from fewshift.nets.graph import GraphEngine
from fewshift.nets.kit import Kit
from fewshift.nets.precision import Precision
from fewshift.types import Episode

ALLOWED = 0.1  # points of mean accuracy
EXACT: Precision = "float32"


def run(
    kit: Kit,
    episodes: Iterable[Episode],
    device: torch.device | str,
    precisions: Sequence[Precision] = ("tf32", "float16"),
    methods: Sequence[str] = ("tsa", "tsp"),
    *,
    captured: bool = True,
) -> dict[str, Any]:
    """Mean accuracies over the same tasks, in points, and whether each precision is within `ALLOWED`.

    bfloat16 is the folded engine's, the others are those of graphs.
    """
    make: Callable[..., Engine] = partial(GraphEngine, captured=captured)
    misfit = cannot_graph
    if "bfloat16" in precisions:
        make, misfit = FoldedEngine, cannot_fold
    if why_not := misfit(kit.backbone):
        raise FewshiftError(
            f"this kit has one precision here ({why_not}): give another --kit, one that adapts a ResNet-18"
        )
    engines: dict[Precision, Engine] = {
        precision: make(kit.backbone, precision=precision)
        for precision in dict.fromkeys((EXACT, *precisions))
    }
    built = [
        replace(METHODS[method](kit, engine, True), name=f"{method} {precision}")  # type: ignore[type-var]
        for method in methods
        for precision, engine in engines.items()
    ]
    found: dict[str, list[float]] = {method.name: [] for method in built}
    for score in evaluate(built, episodes, device=device):
        found[score.method].append(100 * score.accuracy)
    results = [
        compared(method, precision, found[f"{method} {EXACT}"], found[f"{method} {precision}"])
        for method in methods
        for precision in precisions
    ]
    return {"tasks": len(found[built[0].name]), "allowed": ALLOWED, "results": results}


def compared(method: str, precision: str, exact: Sequence[float], faster: Sequence[float]) -> dict[str, Any]:
    """The mean of paired differences with its standard error."""
    differences = [b - a for a, b in zip(exact, faster, strict=True)]
    count = len(differences)
    mean = sum(differences) / count
    spread = sum((d - mean) ** 2 for d in differences) / max(1, count - 1)
    return {
        "method": method,
        "precision": precision,
        "float32": round(sum(exact) / count, 3),
        "accuracy": round(sum(faster) / count, 3),
        "difference": round(mean, 4),
        "standard_error": round(math.sqrt(spread / count), 4),
        "largest": round(max(map(abs, differences)), 2),
        "passes": abs(mean) <= ALLOWED,
    }
