"""Memory that reading processes write and this process hands out as tensors, used again and again.

It is files without names, in memory (`/dev/shm`) or, where that is missing or full, in the folder for
temporary files: the system has them back when the last process that has them open ends, however it ends. A
piece serves another task only when everything that shares its pixels is gone: who keeps a task keeps its
memory.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
import warnings
import weakref
from contextlib import suppress
from pathlib import Path

import numpy as np

from fewshift.data.resize import Floats
from fewshift.errors import FewshiftError

PAGE = 1024  # floats: pieces begin at multiples of it
KEPT = 160 * 2**20  # bytes that wait for later tasks at most
MEMORY_FOLDER = Path("/dev/shm")
_told = False


class SharedMemory:
    """The memory of one group of processes, as much as is needed."""

    def __init__(self) -> None:
        self.files: list[_File] = []
        with suppress(OSError):
            self.files.append(_File(MEMORY_FOLDER))
        with suppress(OSError):
            self.files.append(_File(Path(tempfile.gettempdir())))

    def lend(self, floats: int) -> tuple[int, int, Floats]:
        """The file's descriptor, where in it, and the array there; it comes back when all views are gone."""
        for file in self.files:
            with suppress(OSError):
                return file.descriptor, *file.lend(floats)
            if file.home == MEMORY_FOLDER:
                _tell_once(floats * 4)
        homes = " or ".join(str(file.home) for file in self.files)
        raise FewshiftError(
            f"no room for a task of {floats * 4 >> 20} MiB in {homes}: "
            "free some, name another folder by TMPDIR, or read with threads"
        )

    def close(self) -> None:
        """Let the files go. What is lent stays readable."""
        for file in self.files:
            file.close()


class _File:
    """One file and the pieces of it that are in use."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._file = tempfile.TemporaryFile(buffering=0, dir=home)  # noqa: SIM115
        self.descriptor = self._file.fileno()
        self.close = self._file.close
        self._lock = threading.RLock()  # a piece may come back at any moment, even while this thread has it
        self._used: dict[int, int] = {}  # first float -> the one after the last
        self._size = 0  # floats
        self._next = 0  # after the piece that was lent last
        self._pages: mmap.mmap | None = None

    def lend(self, wanted: int) -> tuple[int, Floats]:
        floats = max(wanted, 1)
        with self._lock:
            first = self._gap(floats)
            self._used[first] = first + floats
            self._next = -(-(first + floats) // PAGE) * PAGE
            try:
                if self._next > self._size:
                    self._grow(self._next)
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
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self.descriptor, 0, size * 4)  # or a full folder would kill the writer
        else:
            self._file.truncate(size * 4)
        self._size = size
        if self._pages is None or len(self._pages) < size * 4:
            self._pages = mmap.mmap(self.descriptor, size * 4)

    def _give_back(self, first: int) -> None:
        with self._lock:
            del self._used[first]
            needed = max(self._used.values(), default=0) + KEPT // 4
            if self._size > needed and not self._file.closed:
                self._file.truncate(needed * 4)
                self._size = needed


def _tell_once(size: int) -> None:
    global _told
    if not _told:
        _told = True
        warnings.warn(
            f"{MEMORY_FOLDER} has no room for a task of {size >> 20} MiB, so tasks wait in "
            f"{tempfile.gettempdir()}, which may be slower; a container gets more by --shm-size=1g",
            stacklevel=2,
        )
