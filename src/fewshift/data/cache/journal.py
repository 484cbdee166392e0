"""What an unfinished cache has on the disk, so that a killed build goes on where it stopped."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

import numpy as np
from numpy.typing import NDArray

from fewshift.data.cache.files import REMEDY, Locations
from fewshift.data.locks import hold
from fewshift.errors import DataError


@dataclass(frozen=True)
class Part:
    """Some consecutive images of `pixels.bin`: their shapes, their bytes' hash, how many were resized."""

    shapes: NDArray[np.uint8]  # (n, 3)
    sha256: str
    rounded: int

    @property
    def size(self) -> int:
        """Bytes of pixels."""
        return int(self.shapes.astype(np.int64).prod(axis=1).sum())

    def line(self) -> bytes:
        """The part as a line of the journal."""
        fields = {"sha256": self.sha256, "rounded": self.rounded, "shapes": self.shapes.tobytes().hex()}
        return json.dumps(fields).encode() + b"\n"


@contextmanager
def open_journal(files: Locations) -> Iterator[IO[bytes]]:
    """The journal, for one process at a time."""
    with open(files.journal, "a+b") as journal:
        hold(journal.fileno(), f"{files.folder}: another process is making this cache: wait for it to end")
        yield journal


def append(journal: IO[bytes], line: bytes) -> None:
    """Put a line on the disk."""
    journal.write(line)
    journal.flush()
    os.fsync(journal.fileno())


def finished_parts(
    files: Locations, journal: IO[bytes], about: dict[str, str | int], name: str
) -> list[Part]:
    """The parts that are on the disk as the journal says; the journal ends after the last of them.

    `about` is its first line: what the cache is made of, and how.
    """
    head = json.dumps(about).encode() + b"\n"
    journal.seek(0)
    first = journal.readline()
    if not first.endswith(b"\n"):  # new, or torn in its first line
        journal.truncate(0)
        append(journal, head)
        return []
    if first != head:
        raise DataError(f"{files.folder}: an unfinished cache of other data than {name} is here: {REMEDY}")
    parts: list[Part] = []
    sound = len(head)
    with open(files.pixels, "a+b") as pixels:
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
