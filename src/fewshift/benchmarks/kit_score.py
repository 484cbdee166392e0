"""Which kit should be the default, and how sure may it be? Plain fits on small validation tasks.

fewshift bench kits --records DIR --kits narrow,lite0 --write

Tasks are those of `own_images`, drawn by their numbers alone, so that every kit is asked about the very same
images: VALID classes of the seen domains and all classes of the `valid_unseen` ones. No test class and no
unseen domain is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from fewshift.benchmarks import own_images
from fewshift.benchmarks.own_tasks import WAY
from fewshift.errors import DataError
from fewshift.estimator.classifier import FewShotClassifier
from fewshift.estimator.recipes import chosen_for
from fewshift.estimator.unknown import Between
from fewshift.nets.bundled import kit_path
from fewshift.nets.kit import KIT, Kit, write_info
from fewshift.nets.tensor_file import read_header
from fewshift.progress import Track, silent

ROLES = ("seen", "valid_unseen")
SHOTS = (1, 2, 5)


def run(
    records: Path,
    kits: Sequence[str],
    tasks: int = 1,
    device: str = "auto",
    seed: int = 0,
    method: str | None = None,
    domains: Sequence[str] = (),
    track: Track = silent,
) -> dict[str, Any]:
    """The score of each kit, and how much better it is than the first, task by task.

    `tasks` are for every domain and number of shots; the method is the estimator's own where none is named.
    """
    chosen = method or str(FewShotClassifier().method)
    found = {
        kit: own_images.run(records, kit, chosen, tasks, SHOTS, device, "valid", seed, domains, track)
        for kit in kits
    }
    rows = {kit: outcome["tasks"] for kit, outcome in found.items()}
    missing = {*ROLES} - {row["role"] for row in rows[kits[0]]}
    if missing:
        raise DataError(
            f"{records}: a kit's score needs {min(missing)} domains too, and there are none: "
            "give domains their roles in its suite.json"
        )
    return {
        "settings": {"way": WAY, "shots": list(SHOTS), "tasks": tasks, "seed": seed, "method": chosen},
        "kits": {kit: _summary(mine, rows[kits[0]], chosen) for kit, mine in rows.items()},
        "tasks": rows,
    }


def _summary(rows: Sequence[dict[str, Any]], first: Sequence[dict[str, Any]], method: str) -> dict[str, Any]:
    """The score is the mean over both kinds of domains, each half, whatever the number of their domains."""
    found, against = (np.array([row["fit"] for row in part]) for part in (rows, first))
    gain = found - against
    means = {role: round(float(np.mean([r["fit"] for r in rows if r["role"] == role])), 4) for role in ROLES}
    return {
        "score": round(sum(means.values()) / len(means), 4),
        **means,
        "scale": best_scale(rows),
        "one_image": {
            name: asdict(usual_place(rows, key))
            for name, key in ((method, "between"), ("ncc", "between_ncc"))
        },
        "domains": {
            name: round(float(np.mean([row["fit"] for row in rows if row["domain"] == name])), 4)
            for name in dict.fromkeys(row["domain"] for row in rows)
        },
        "difference": round(float(gain.mean()), 4),
        "interval": round(float(1.96 * gain.std(ddof=1) / len(gain) ** 0.5), 4),
    }


def best_scale(rows: Sequence[dict[str, Any]]) -> float:
    """The scale of the cosine at which queries are least surprising, both kinds of domains alike."""
    by_role = [[row["cross_entropy_by_scale"] for row in rows if row["role"] == role] for role in ROLES]
    return own_images.SCALES[int(np.sum([np.mean(part, axis=0) for part in by_role], axis=0).argmin())]


def usual_place(rows: Sequence[dict[str, Any]], key: str = "between") -> Between:
    """Mean and spread of the places of images where classes have one image, both kinds of domains alike."""
    means, squares = [], []
    for role in ROLES:
        found = np.array([row[key] for row in rows if row["role"] == role and row["shot"] == 1])
        means.append(found[:, 0].mean())
        squares.append((found**2).sum(axis=1).mean())  # of mean and spread: the mean square of the places
    mean = float(np.mean(means))
    return Between(round(mean, 3), round(float(np.mean(squares) - mean**2) ** 0.5, 3))


def write_score(kit: str, outcome: dict[str, Any]) -> Path:
    """Put a kit's score and scale into its file; tensors stay the same.

    The choice of the default reads the score. The scale is that of fits which can hold nothing out, and where
    others begin to look for theirs; such fits also take their limit of unknown images from here.
    """
    path = kit_path(kit)
    info, found = read_header(path, KIT)["info"], outcome["kits"][kit]
    validation = {
        **info.get("validation", {}),
        "default_score": found["score"],
        "default_score_of": {role: found[role] for role in ROLES} | outcome["settings"],
        "scale": found["scale"],
        "one_image": found["one_image"],
    }
    write_info(path, {**info, "validation": validation}, path)
    return path


def without_stale_score(kit: Kit, before: Kit) -> Kit:
    """The kit without what `write_score` put there, if fits came out otherwise `before`: at other rates."""
    told = before.info.get("validation", {})
    method = told.get("default_score_of", {}).get("method", FewShotClassifier().method)
    if chosen_for(method, kit) == chosen_for(method, before):
        return kit
    return kit.with_(info={name: kept for name, kept in kit.info.items() if name != "validation"})


def table(outcome: dict[str, Any]) -> str:
    """The scores for people."""
    first = next(iter(outcome["kits"]))
    lines = [f"{'kit':<16} {'seen':>6} {'valid_unseen':>13} {'score':>6} {'scale':>6}  against {first}"]
    for kit, row in outcome["kits"].items():
        against = "" if kit == first else f"{100 * row['difference']:+.1f} ± {100 * row['interval']:.1f}"
        means = f"{row['seen']:>6.1%} {row['valid_unseen']:>13.1%} {row['score']:>6.1%}"
        lines.append(f"{kit:<16} {means} {row['scale']:>6g}  {against}".rstrip())
    return "\n".join(lines)
