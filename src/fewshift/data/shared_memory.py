"""Memory that reading processes write and this process hands out as tensors, used again and again.

It is a file in memory (`/dev/shm`, or the folder for temporary files where that is missing or full). A piece
serves another task only when everything that shares its pixels is gone: who keeps a task keeps its memory.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import shutil
import sys
import tempfile
import threading
import time
import warnings
import weakref
from pathlib import Path

import numpy as np

from fewshift.data.locks import hold
from fewshift.data.resize import Floats
from fewshift.errors import DataError, FewshiftError

PAGE = 1024  # floats: pieces begin at multiples of it
KEPT = 160 * 2**20  # bytes that wait for later tasks at most
MEMORY_FOLDER = Path("/dev/shm")
PREFIX = "fewshift-tasks-"
ABANDONED = 3600  # seconds: files older than this that no process holds were left by killed processes
_told = False


class SharedMemory:
    """The memory of one group of processes, as much as is needed."""

    def __init__(self) -> None:
        self._files: dict[Path, _File] = {}  # by the folder they are in

    def lend(self, floats: int) -> tuple[Path, int, Floats]:
        """The file, where in it, and the array there; it comes back when the array and all views are gone."""
        for home in _homes():
            lent = self._lend_from(home, floats)
            if lent is not None:
                return lent
            if home == MEMORY_FOLDER:
                _tell_once(floats * 4)
        raise FewshiftError(
            f"no room for a task of {floats * 4 >> 20} MiB in {' or '.join(map(str, _homes()))}: "
            "free some, name another folder by TMPDIR, or read with threads"
        )

    def _lend_from(self, home: Path, floats: int) -> tuple[Path, int, Floats] | None:
        try:
            if home not in self._files:
                self._files[home] = _File(home)
            file = self._files[home]
            return file.path, *file.lend(floats)
        except OSError:
            return None

    def folder(self) -> str:
        """Where the first file will be, for cleaning up after a killed process; "" if nowhere."""
        home = _homes()[0]
        with contextlib.suppress(OSError):
            self._files[home] = _File(home)
            return str(self._files[home].path.parent)
        return ""

    def close(self) -> None:
        """Remove the files. What is lent stays readable."""
        for file in self._files.values():
            file.close()


class _File:
    """One file and the pieces of it that are in use."""

    def __init__(self, home: Path) -> None:
        _sweep(home)
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=home)) / "tasks"
        self._held = _held(self.path)
        self._lock = threading.RLock()  # a piece may come back at any moment, even while this thread has it
        self._used: dict[int, int] = {}  # first float -> the one after the last
        self._size = 0  # floats
        self._next = 0  # after the piece that was lent last
        self._pages: mmap.mmap | None = None

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._held)
        shutil.rmtree(self.path.parent, ignore_errors=True)

    def lend(self, wanted: int) -> tuple[int, Floats]:
        floats = max(wanted, 1)
        with self._lock:
            first = self._gap(floats)
            self._used[first] = first + floats
            self._next = -(-(first + floats) // PAGE) * PAGE
            try:
                if first + floats > self._size:
                    self._grow(-(-(first + floats) // PAGE) * PAGE)
            except OSError:
                del self._used[first]
                raise
            assert self._pages is not None
            # Its own array each time: numpy's views keep this one alive, and nothing that outlives the loan.
            whole: Floats = np.frombuffer(self._pages, np.float32, floats, first * 4)
        weakref.finalize(whole, self._give_back, first).atexit = False
        return first, whole[:wanted]

    def _gap(self, floats: int) -> int:
        """A place with so much room, behind the last one if possible.

        Pieces mostly come back in the order in which they were lent: so the room behind the last grows, and
        little is lost between them.
        """
        gaps, free = [], 0
        for begin, end in sorted(self._used.items()):
            gaps.append((free, begin))
            free = max(free, -(-end // PAGE) * PAGE)
        gaps.append((free, self._size))
        behind = [max(begin, self._next) for begin, end in gaps if end - max(begin, self._next) >= floats]
        return min(behind or [begin for begin, end in gaps if end - begin >= floats] or [free])

    def _grow(self, size: int) -> None:
        with open(self.path, "r+b") as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size * 4)  # or a full folder would kill the writer
            else:
                file.truncate(size * 4)
            self._size = size
            if self._pages is None or len(self._pages) < size * 4:
                self._pages = mmap.mmap(file.fileno(), size * 4)

    def _give_back(self, first: int) -> None:
        with self._lock:
            del self._used[first]
            needed = max(self._used.values(), default=0) + KEPT // 4
            if self._size > needed:
                with contextlib.suppress(OSError):  # the file is gone already
                    os.truncate(self.path, needed * 4)
                    self._size = needed


def _held(path: Path) -> int:
    """A new file that this process holds until it closes it or dies: so others know that it is in use."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    hold(fd, "in use")
    return fd


def _sweep(home: Path) -> None:
    """Remove what processes left here that were killed together, so that none could clean up."""
    if sys.platform == "win32":  # where a file in use cannot be removed by others
        return
    for folder in home.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError, DataError):
            if folder.stat().st_mtime > time.time() - ABANDONED:
                continue
            fd = os.open(folder / "tasks", os.O_RDWR)
            try:
                if hold(fd, "in use"):  # without locks nobody can tell
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(fd)


def _homes() -> list[Path]:
    temporary = Path(tempfile.gettempdir())
    return [MEMORY_FOLDER, temporary] if os.access(MEMORY_FOLDER, os.W_OK) else [temporary]


def _tell_once(size: int) -> None:
    global _told
    if not _told:
        _told = True
        warnings.warn(
            f"{MEMORY_FOLDER} has no room for a task of {size >> 20} MiB, so tasks wait in "
            f"{tempfile.gettempdir()}, which may be slower; a container gets more by --shm-size=1g",
            stacklevel=2,
        )
