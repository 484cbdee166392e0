"""Is a fit on a handful of images better than none? Small tasks of TEST classes, fit against ncc on each.

fewshift bench own-images --records DIR --kit KIT --tasks 10 --shots 1,2,5,10
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fewshift.data.domain import Domain
from fewshift.data.records_folder import open_records
from fewshift.estimator.classifier import FewShotClassifier
from fewshift.progress import Track, silent
from fewshift.types import Split

WAY = 5
QUERIES = 10  # a class


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
) -> dict[str, Any]:
    """`tasks` tasks of every domain, the shots in turn: one row a task, and the differences by domain."""
    found = [d for d in open_records(records, list(domains) or None) if len(d.spec.splits[split])]
    jobs = [(domain, index) for index in range(tasks) for domain in found]
    rows = [
        _row(domain, index, shots[index % len(shots)], kit, method, device, split, seed)
        for domain, index in track(jobs, label="own images", total=len(jobs))
    ]
    return {
        "settings": {
            "kit": kit or "default",
            "method": method,
            "way": WAY,
            "shots": list(shots),
            "seed": seed,
        },
        "domains": {d.name: _summary([row for row in rows if row["domain"] == d.name]) for d in found},
        "all": _summary(rows),
        "tasks": rows,
    }


def _row(
    domain: Domain, index: int, shot: int, kit: str | None, method: str, device: str, split: Split, seed: int
) -> dict[str, Any]:
    support, query, known, asked = _task(domain, index, shot, split, seed)
    fit = FewShotClassifier(kit=kit, method=method, device=device, seed=seed, quiet=True).fit(support, known)
    ncc = FewShotClassifier(kit=kit, method="ncc", device=device, quiet=True).fit(support, known)
    shares = fit.predict_proba(query)
    right = shares[np.arange(len(asked)), np.searchsorted(fit.classes_, asked)]
    return {
        "domain": domain.name,
        "index": index,
        "shot": shot,
        "fit": float(np.mean(fit.classes_[shares.argmax(1)] == asked)),
        "ncc": ncc.score(query, asked),
        "cross_entropy": float(-np.log(np.maximum(right, 1e-12)).mean()),
        "confidence": float(shares.max(1).mean()),
        "unknown": float(fit.is_unknown(query).mean()),
        "steps": fit.settings_.steps,
        "rates": list(fit.settings_.rates),
        "seconds": round(fit.seconds_, 3),
    }


def _task(
    domain: Domain, index: int, shot: int, split: Split, seed: int
) -> tuple[list[Any], list[Any], list[int], list[int]]:
    """Images of some classes by chance; a class gives its queries from what its shots leave."""
    chance = np.random.default_rng([seed, index, *domain.name.encode()])
    counts = domain.spec.images_per_class
    able = [c for c in domain.spec.splits[split] if counts[c] > shot]
    support, query = [], []
    for c in chance.choice(able, min(WAY, len(able)), replace=False).tolist():
        order = chance.permutation(counts[c]).tolist()
        support += [(c, i) for i in order[:shot]]
        query += [(c, i) for i in order[shot : shot + QUERIES]]
    read = domain.source.read
    return read(support), read(query), [c for c, _ in support], [c for c, _ in query]


def _summary(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Means in per cent, and the paired difference with its 95% interval."""
    fit, ncc = (100 * np.array([row[name] for row in rows]) for name in ("fit", "ncc"))
    gain = fit - ncc
    spread = float(gain.std(ddof=1)) if len(gain) > 1 else float("nan")
    return {
        "tasks": len(rows),
        "fit": round(float(fit.mean()), 2),
        "ncc": round(float(ncc.mean()), 2),
        "difference": round(float(gain.mean()), 2),
        "interval": round(1.96 * spread / len(gain) ** 0.5, 2) if len(gain) > 1 else float("nan"),
        "confidence_less_accuracy": round(
            100 * float(np.mean([r["confidence"] for r in rows])) - fit.mean(), 2
        ),
        "called_unknown": round(100 * float(np.mean([row["unknown"] for row in rows])), 2),
    }


def table(outcome: dict[str, Any]) -> str:
    """The differences for people."""
    lines = [f"{'domain':<16} {'tasks':>5} {'fit':>7} {'ncc':>7}  difference"]
    for name, row in {**outcome["domains"], "all": outcome["all"]}.items():
        lines.append(
            f"{name:<16} {row['tasks']:>5} {row['fit']:>7.2f} {row['ncc']:>7.2f}  "
            f"{row['difference']:+.2f} ± {row['interval']:.2f}"
        )
    return "\n".join(lines)
