"""Memory that reading processes write and this process hands out as tensors, used again and again.

A slot is a file in memory (`/dev/shm`, or the folder for temporary files where that is missing or full). It
serves another task only when everything that shares its pixels is gone: who keeps a task keeps its memory.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import shutil
import tempfile
import threading
import warnings
import weakref
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np

from fewshift.data.resize import Floats
from fewshift.errors import FewshiftError

STEP = 2**20  # floats: slots come in multiples of 4 MiB, so that one fits many tasks
KEPT = 160 * 2**20  # bytes that wait for later tasks at most
MEMORY_FOLDER = Path("/dev/shm")
_told = False


@dataclass
class Slot:
    """A file and this process's view of it."""

    path: Path
    pages: mmap.mmap


class Slots:
    """The slots of one group of processes."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a slot may come back at any moment, even inside a method below
        self._free: list[Slot] = []
        self._numbers = count()
        self._folders: list[Path] = []
        self._closed = False

    def lend(self, floats: int) -> tuple[Path, Floats]:
        """The file and an array of it; the slot comes back when the array and all its views are gone."""
        slot = self._take(floats)
        # Its own array each time: numpy's views keep this one alive, and nothing that outlives the loan.
        whole: Floats = np.frombuffer(slot.pages, np.float32)
        weakref.finalize(whole, self._give_back, slot).atexit = False
        return slot.path, whole[:floats]

    def close(self) -> None:
        """Remove the files. What is lent stays readable."""
        with self._lock:
            self._closed = True
            self._free.clear()
            folders, self._folders = self._folders, []
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)

    def _take(self, floats: int) -> Slot:
        size = -(-floats // STEP) * STEP * 4
        with self._lock:
            self._free.sort(key=lambda slot: len(slot.pages))
            place = next((i for i, slot in enumerate(self._free) if len(slot.pages) >= size), -1)
            slot = self._free.pop(place) if self._free else None  # the smallest that fits, or the largest
        if slot is None or len(slot.pages) >= size:
            return slot or self._new(size)
        try:
            return _open(slot.path, size)
        except OSError:
            _discard(slot)
            return self._new(size)

    def _give_back(self, slot: Slot) -> None:
        with self._lock:
            if not self._closed and len(slot.pages) + sum(len(s.pages) for s in self._free) <= KEPT:
                self._free.append(slot)
                return
        _discard(slot)

    def _new(self, size: int) -> Slot:
        problem: OSError | None = None
        for home in _homes():
            folder = next((known for known in self._folders if known.parent == home), None)
            try:
                if folder is None:
                    folder = Path(tempfile.mkdtemp(prefix="fewshift-", dir=home))
                    self._folders.append(folder)
                path = folder / f"slot-{next(self._numbers)}"
                return _open(path, size)
            except OSError as found:
                problem = found
                if folder is not None:
                    path.unlink(missing_ok=True)
                if home == MEMORY_FOLDER:
                    _tell_once(size)
        raise FewshiftError(
            f"no room for a task of {size >> 20} MiB in {' or '.join(map(str, _homes()))} ({problem}): "
            "free some, name another folder by TMPDIR, or read with threads"
        )


def _homes() -> list[Path]:
    temporary = Path(tempfile.gettempdir())
    return [MEMORY_FOLDER, temporary] if os.access(MEMORY_FOLDER, os.W_OK) else [temporary]


def _open(path: Path, size: int) -> Slot:
    """A new file, or one that grows."""
    with open(path, "a+b") as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)  # or a full folder would kill whoever writes
        else:
            file.truncate(size)
        return Slot(path, mmap.mmap(file.fileno(), size))


def _discard(slot: Slot) -> None:
    """Give the memory back now, though some process may still have the file in its view."""
    with contextlib.suppress(OSError):
        os.truncate(slot.path, 0)
        slot.path.unlink()


def _tell_once(size: int) -> None:
    global _told
    if not _told:
        _told = True
        warnings.warn(
            f"{MEMORY_FOLDER} has no room for a task of {size >> 20} MiB, so tasks wait in "
            f"{tempfile.gettempdir()}, which may be slower; a container gets more by --shm-size=1g",
            stacklevel=2,
        )
