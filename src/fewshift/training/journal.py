"""The log of a run: one JSON line per step, readable while it grows, whole again after a crash."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fewshift.data.whole_files import write_whole
from fewshift.errors import FewshiftError

Line = Mapping[str, Any]


def append(path: Path, lines: Iterable[Line]) -> None:
    """Add these lines and hand them to the disk."""
    text = "".join(json.dumps(_plain(line)) + "\n" for line in lines)
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except OSError as problem:
        raise FewshiftError(
            f"{path}: could not be written ({problem.strerror}): make room and go on with --resume"
        ) from problem


def cut(path: Path, step: int) -> None:
    """Drop what was written after this step, and a line that a killed process left half-written."""
    if not path.exists():
        return
    kept = "".join(json.dumps(line) + "\n" for line in read(path) if line["step"] <= step).encode()
    if kept != path.read_bytes():
        write_whole(path, kept)


def sweep(folder: Path, *orphans: str) -> None:
    """Remove what a killed run left: drafts of files, and states that no run in this folder goes on from."""
    for left in (*folder.glob(".*.part"), *(folder / name for name in orphans)):
        left.unlink(missing_ok=True)


def read(path: Path) -> Iterator[dict[str, Any]]:
    """The whole lines of a log; a torn one is passed over."""
    for text in path.read_bytes().split(b"\n"):
        try:
            line = json.loads(text)
        except ValueError:  # half a line, or bytes that are not text, as a killed process or a crash leaves
            continue
        if isinstance(line, dict) and isinstance(line.get("step"), int):
            yield line


def _plain(line: Line) -> dict[str, Any]:
    """JSON has no word for infinity or not-a-number: both become null."""
    return {key: _number(value) for key, value in line.items()}


def _number(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return _plain(value)
    return value
