"""A bounded number of open files for positioned reads, shared by threads, safe across fork."""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from fewshift.errors import DataError

Version: TypeAlias = tuple[int, int]  # size and time of change in nanoseconds


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """The descriptor of a file that is closed afterwards; trouble while reading it becomes a `DataError`."""
    try:
        handle = _open(path)
        try:
            yield handle
        finally:
            os.close(handle)
    except OSError as problem:
        raise _unreadable(path, problem) from problem


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


@dataclass
class _Opened:
    handle: int
    users: int = 0


class Descriptors:
    """At most `limit` files stay open: the one used longest ago is closed first, never while it is read."""

    def __init__(self, limit: int = 64) -> None:
        if limit < 1:
            raise ValueError(f"limit is {limit}: at least one file must be open")
        self.limit = limit
        self._files: OrderedDict[tuple[Path, Version], _Opened] = OrderedDict()
        self._lock = threading.Lock()
        weakref.finalize(self, _close_all, self._files)
        _pools.add(self)

    def __len__(self) -> int:
        return len(self._files)

    @contextmanager
    def use(self, path: Path, version: Version) -> Iterator[int]:
        """The descriptor of this file while the `with` block lasts, if the file is still this version."""
        key = (path, version)
        try:
            with self._lock:
                file = self._files.get(key)
                if file is None:
                    self._shrink(self.limit - 1)
                    file = self._files[key] = _Opened(_open_version(path, version))
                self._files.move_to_end(key)
                file.users += 1
            try:
                yield file.handle
            finally:
                with self._lock:
                    file.users -= 1
                    self._shrink(self.limit)
        except OSError as problem:
            raise _unreadable(path, problem) from problem

    def close(self) -> None:
        """Close all files that nobody reads; they are opened again when needed."""
        with self._lock:
            self._shrink(0)

    def _shrink(self, limit: int) -> None:
        if len(self._files) <= limit:
            return
        for key in [key for key, file in self._files.items() if not file.users]:
            os.close(self._files.pop(key).handle)
            if len(self._files) <= limit:
                return

    def _after_fork(self) -> None:
        # Another thread of the parent may have held the lock or been reading; neither exists in the child.
        # Positioned reads do not move the offset that parent and child share, so open files stay usable.
        self._lock = threading.Lock()
        for file in self._files.values():
            file.users = 0


_pools: weakref.WeakSet[Descriptors] = weakref.WeakSet()


def _close_all(files: OrderedDict[tuple[Path, Version], _Opened]) -> None:
    for file in files.values():
        os.close(file.handle)
    files.clear()


def _forget_parent() -> None:
    for pool in list(_pools):
        pool._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parent)

SHARED = Descriptors()  # by all domains of the process
_seek_lock = threading.Lock()


def _read_once(handle: int, size: int, offset: int) -> bytes:
    if hasattr(os, "pread"):
        return os.pread(handle, size, offset)
    with _seek_lock:  # Windows has no positioned reads
        os.lseek(handle, offset, os.SEEK_SET)
        return os.read(handle, size)


# Not every system has all of them; a pipe in the place of a file must not block.
_FLAGS = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_CLOEXEC", "O_BINARY", "O_NONBLOCK"))


def _open(path: Path) -> int:
    return os.open(path, _FLAGS)


def _open_version(path: Path, version: Version) -> int:
    handle = _open(path)
    status = os.fstat(handle)
    if (status.st_size, status.st_mtime_ns) != version:
        os.close(handle)
        raise DataError(f"{path}: the file has changed since it was indexed: open the domain again")
    return handle


def _unreadable(path: Path, problem: OSError) -> DataError:
    if isinstance(problem, FileNotFoundError):
        return DataError(f"{path}: the file is missing: copy or convert this class again")
    return DataError(f"{path}: it cannot be read ({problem.strerror}): check the disk and the permissions")
