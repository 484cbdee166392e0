"""What an unfinished cache has on the disk, so that a killed build goes on where it stopped."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from fewshift.data.cache.files import JOURNAL, PIXELS, REMEDY
from fewshift.data.locks import hold
from fewshift.errors import DataError


@dataclass(frozen=True)
class Part:
    """Some consecutive images of the pixels' file: their shapes, their bytes' hash, how many were resized."""

    shapes: NDArray[np.uint8]  # (n, 3)
    sha256: str
    rounded: int

    @property
    def size(self) -> int:
        """Bytes of pixels."""
        return int(self.shapes.astype(np.int64).prod(axis=1).sum())

    def fields(self) -> dict[str, Any]:
        """The part as the journal has it."""
        return {"sha256": self.sha256, "rounded": self.rounded, "shapes": self.shapes.tobytes().hex()}


@contextmanager
def open_journal(folder: Path) -> Iterator[IO[bytes]]:
    """The journal, for one process at a time."""
    with open(folder / JOURNAL, "a+b") as journal:
        hold(journal.fileno(), f"{folder}: another process is making this cache: wait for it to end")
        yield journal


def append(journal: IO[bytes], fields: Mapping[str, Any]) -> None:
    """Put a line on the disk."""
    journal.write(json.dumps(fields).encode() + b"\n")
    journal.flush()
    os.fsync(journal.fileno())


def finished_parts(folder: Path, journal: IO[bytes], about: Mapping[str, Any], name: str) -> list[Part]:
    """The parts that are on the disk as the journal says; the journal ends after the last of them.

    `about` is its first line: what the cache is made of, and how.
    """
    journal.seek(0)
    first = journal.readline()
    if not first.endswith(b"\n"):  # new, or torn in its first line
        journal.truncate(0)
        append(journal, about)
        return []
    if first != json.dumps(about).encode() + b"\n":
        raise DataError(f"{folder}: an unfinished cache of other data than {name} is here: {REMEDY}")
    parts: list[Part] = []
    sound = len(first)
    with open(folder / PIXELS, "a+b") as pixels:
        pixels.seek(0)
        for line in journal:
            part = _parse(line)
            if part is None or hashlib.sha256(pixels.read(part.size)).hexdigest() != part.sha256:
                break
            parts.append(part)
            sound += len(line)
    journal.truncate(sound)
    return parts


def _parse(line: bytes) -> Part | None:
    if not line.endswith(b"\n"):
        return None
    try:
        fields = json.loads(line)
        shapes = np.frombuffer(bytes.fromhex(fields["shapes"]), np.uint8).reshape(-1, 3)
        return Part(shapes, str(fields["sha256"]), int(fields["rounded"]))
    except (ValueError, KeyError, TypeError):
        return None
