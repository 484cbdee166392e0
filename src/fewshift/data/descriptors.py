"""Files for positioned reads: a bounded number of them stays open, shared by threads, safe across fork."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

from fewshift.errors import DataError

Version: TypeAlias = tuple[int, int]  # size and time of change in nanoseconds
MOST = 64  # files of all domains of the process

# Not every system has all of them; a pipe in the place of a file must not block.
_FLAGS = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_CLOEXEC", "O_BINARY", "O_NONBLOCK"))


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """The descriptor of a file that is closed afterwards; trouble while reading it becomes a `DataError`."""
    with _trouble_named(path):
        handle = os.open(path, _FLAGS)
        try:
            yield handle
        finally:
            os.close(handle)


@contextmanager
def kept_open(path: Path, version: Version) -> Iterator[int]:
    """The descriptor of a file that stays open for later, as one of a few, if it is still this version."""
    with _trouble_named(path):
        file = _file(path, version)  # a name of its own, so that the file is not closed while it is read
        yield file.handle


class _File:
    """An open file, closed when nobody holds it any more."""

    def __init__(self, path: Path, version: Version) -> None:
        self.handle = os.open(path, _FLAGS)
        weakref.finalize(self, os.close, self.handle)
        status = os.fstat(self.handle)
        if (status.st_size, status.st_mtime_ns) != version:
            raise DataError(f"{path}: the file has changed since it was indexed: open the domain again")


# Has no lock that a fork could copy while it is held. A child and its parent share the offset of an open
# file, which positioned reads do not move.
_file = lru_cache(MOST)(_File)


@contextmanager
def _trouble_named(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as problem:
        raise DataError(f"{path}: the file is missing: copy or convert this class again") from problem
    except OSError as problem:
        raise DataError(
            f"{path}: it cannot be read ({problem.strerror}): check the disk and the permissions"
        ) from problem


def read_at(handle: int, size: int, offset: int) -> bytes:
    """Up to `size` bytes from `offset` on; fewer only if the file ends there."""
    data = _read_once(handle, size, offset)
    if len(data) == size or not data:
        return data
    pieces = [data]  # a network file system or a signal may cut a read short
    while data and (size := size - len(data)):
        offset += len(data)
        data = _read_once(handle, size, offset)
        pieces.append(data)
    return b"".join(pieces)


_seek_lock = threading.Lock()


def _read_once(handle: int, size: int, offset: int) -> bytes:
    if hasattr(os, "pread"):
        return os.pread(handle, size, offset)
    with _seek_lock:  # Windows has no positioned reads
        os.lseek(handle, offset, os.SEEK_SET)
        return os.read(handle, size)
