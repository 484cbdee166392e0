"""What the choosers share: where packages lie, likeness of pictures, splits, and the file they write."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

CLASSES = Path(__file__).resolve().parents[2] / "src/fewshift/data/open_suite/classes"


def archive_of(folder: Path, package: str) -> Path:
    """The one version of this package in a folder of tarballs."""
    start = package.removeprefix("@").replace("/", "-")
    found = [p for p in folder.glob(f"{start}-*.tgz") if p.name.removeprefix(f"{start}-")[0].isdigit()]
    if len(found) != 1:
        raise SystemExit(f"{folder}: {len(found)} archives of {package}, expected one")
    return found[0]


def direction(picture: bytes, size: int, mode: str = "RGB") -> NDArray[np.float64]:
    """A small copy of the picture's ink as a vector of length one."""
    small = Image.open(io.BytesIO(picture)).convert(mode).resize((size, size), Image.Resampling.BOX)
    ink = 255.0 - np.asarray(small, dtype=np.float64).ravel()
    return np.asarray(ink / (np.linalg.norm(ink) + 1e-9))


def split_classes(names: Sequence[str], seed: int) -> dict[str, list[str]]:
    """70 / 15 / 15 per cent of the classes, shuffled once."""
    order = [names[i] for i in np.random.default_rng(seed).permutation(len(names))]
    train, valid = round(0.70 * len(order)), round(0.85 * len(order))
    return {"train": order[:train], "valid": order[train:valid], "test": order[valid:]}


def write_classes(
    domain: str,
    splits: Mapping[str, Sequence[str]],
    pictures: Mapping[str, Mapping[str, str]] | Mapping[str, Mapping[str, list[str]]],
) -> None:
    """One line a class: its name and the pictures it is made of."""
    lines = []
    for split in ("train", "valid", "test"):
        rows = ",\n".join(
            f"  {json.dumps(c, ensure_ascii=False)}: {json.dumps(pictures[c], ensure_ascii=False)}"
            for c in splits[split]
        )
        lines.append(f' "{split}": {{\n{rows}\n }}' if rows else f' "{split}": {{}}')
    CLASSES.mkdir(exist_ok=True)
    (CLASSES / f"{domain}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(domain, "classes:", {split: len(names) for split, names in splits.items()})
