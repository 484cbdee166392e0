"""Which kit should be the default? The accuracy of a plain `fit` on small validation tasks, one number a kit.

fewshift bench kits --records DIR --kits narrow,lite0 --write

Tasks are drawn by their numbers alone, so that every kit is asked about the very same images: VALID classes
of the seen domains and all classes of the `valid_unseen` ones. No test class and no unseen domain is looked
at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fewshift.data.domain import Domain, Item
from fewshift.data.records_folder import open_records
from fewshift.errors import DataError
from fewshift.estimator.classifier import FewShotClassifier
from fewshift.nets.bundled import bundled_kits
from fewshift.nets.kit import KIT
from fewshift.nets.tensor_file import read_tensors, write_tensors
from fewshift.progress import Track, silent
from fewshift.types import Split

SPLIT_OF: dict[str, Split] = {"seen": "valid", "valid_unseen": "test"}
WAY = 5
SHOTS = (1, 2, 5)  # in turn
QUERIES = 10  # a class
TASKS = len(SHOTS)  # a domain


@dataclass(frozen=True)
class SmallTask:
    """Where the images of a task are, class by class."""

    domain: Domain
    index: int
    support: tuple[Item, ...]
    query: tuple[Item, ...]


def drawn(domains: Sequence[Domain], tasks: int, seed: int) -> Iterator[SmallTask]:
    """The validation tasks of these domains."""
    for domain in domains:
        counts, ids = domain.spec.images_per_class, domain.spec.splits[SPLIT_OF[domain.role]]
        for index in range(tasks):
            shot = SHOTS[index % len(SHOTS)]
            able = [c for c in ids if counts[c] > shot]
            if len(able) < 2:
                raise DataError(f"{domain.name}: fewer than two classes have more than {shot} images")
            chance = np.random.default_rng([seed, index, *domain.name.encode()])
            support: list[Item] = []
            query: list[Item] = []
            for c in chance.choice(able, min(WAY, len(able)), replace=False).tolist():
                order = chance.permutation(counts[c]).tolist()
                support += [(c, image) for image in order[:shot]]
                query += [(c, image) for image in order[shot : shot + QUERIES]]
            yield SmallTask(domain, index, tuple(support), tuple(query))


def run(
    records: Path,
    kits: Sequence[str],
    tasks: int = TASKS,
    device: str = "auto",
    seed: int = 0,
    track: Track = silent,
) -> dict[str, Any]:
    """The score of each kit, and how much better it is than the first, task by task."""
    domains = [
        d for d in open_records(records) if d.role in SPLIT_OF and len(d.spec.splits[SPLIT_OF[d.role]])
    ]
    missing = {*SPLIT_OF} - {d.role for d in domains}
    if missing:
        raise DataError(f"{records}: a kit's score needs {min(missing)} domains too, and there are none")
    planned = list(drawn(domains, tasks, seed))
    rows = {kit: [_row(task, kit, device, seed) for task in track(planned, label=kit)] for kit in kits}
    return {
        "settings": {"way": WAY, "shots": list(SHOTS), "tasks": tasks, "queries": QUERIES, "seed": seed},
        "kits": {kit: _summary(found, rows[kits[0]]) for kit, found in rows.items()},
        "tasks": rows,
    }


def _row(task: SmallTask, kit: str, device: str, seed: int) -> dict[str, Any]:
    read = task.domain.source.read
    classifier = FewShotClassifier(kit=kit, device=device, seed=seed, quiet=True)
    classifier.fit(read(task.support), [c for c, _ in task.support])
    return {
        "domain": task.domain.name,
        "role": task.domain.role,
        "index": task.index,
        "shot": len(task.support) // len({c for c, _ in task.support}),
        "accuracy": classifier.score(read(task.query), [c for c, _ in task.query]),
        "seconds": round(classifier.seconds_, 3),
    }


def _summary(rows: Sequence[dict[str, Any]], first: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The score is the mean over both kinds of domains, each half, whatever the number of their domains."""
    found = np.array([row["accuracy"] for row in rows])
    gain = found - np.array([row["accuracy"] for row in first])
    roles = np.array([row["role"] for row in rows])
    means = {role: round(float(found[roles == role].mean()), 4) for role in SPLIT_OF}
    return {
        "score": round(sum(means.values()) / len(means), 4),
        **means,
        "domains": {
            name: round(float(np.mean([row["accuracy"] for row in rows if row["domain"] == name])), 4)
            for name in dict.fromkeys(row["domain"] for row in rows)
        },
        "difference": round(float(gain.mean()), 4),
        "interval": round(float(1.96 * gain.std(ddof=1) / len(gain) ** 0.5), 4) if len(gain) > 1 else None,
    }


def write_score(kit: str, outcome: dict[str, Any]) -> Path:
    """Put a kit's score into its file, where the choice of the default reads it; tensors stay the same."""
    path = bundled_kits().get(kit, Path(kit))
    header, tensors = read_tensors(path, KIT)
    found, made = outcome["kits"][kit], outcome["settings"]
    known = header["info"].get("validation", {})
    header["info"]["validation"] = {
        **known,
        "default_score": found["score"],
        "default_score_of": {"seen": found["seen"], "valid_unseen": found["valid_unseen"], **made},
    }
    write_tensors(path, KIT, header, tensors)
    return path


def table(outcome: dict[str, Any]) -> str:
    """The scores for people."""
    first = next(iter(outcome["kits"]))
    lines = [f"{'kit':<16} {'seen':>6} {'valid_unseen':>13} {'score':>6}  against {first}"]
    for kit, row in outcome["kits"].items():
        against = (
            "" if kit == first else f"{100 * row['difference']:+.1f} ± {100 * (row['interval'] or 0):.1f}"
        )
        means = f"{row['seen']:>6.1%} {row['valid_unseen']:>13.1%} {row['score']:>6.1%}"
        lines.append(f"{kit:<16} {means}  {against}".rstrip())
    return "\n".join(lines)
