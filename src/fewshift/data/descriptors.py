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

from fewshift.errors import DataError


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
        self._files: OrderedDict[Path, _Opened] = OrderedDict()
        self._lock = threading.Lock()
        _pools.add(self)

    def __len__(self) -> int:
        return len(self._files)

    @contextmanager
    def use(self, path: Path) -> Iterator[int]:
        """The descriptor of this file, which stays open as long as the `with` block lasts."""
        try:
            with self._lock:
                file = self._files.get(path)
                if file is None:
                    self._shrink(self.limit - 1)
                    file = self._files[path] = _Opened(_open(path))
                self._files.move_to_end(path)
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
        for path in [path for path, file in self._files.items() if not file.users]:
            if len(self._files) <= limit:
                return
            os.close(self._files.pop(path).handle)

    def _after_fork(self) -> None:
        # Another thread of the parent may have held the lock or been reading; neither exists in the child.
        # Positioned reads do not move the offset that parent and child share, so open files stay usable.
        self._lock = threading.Lock()
        for file in self._files.values():
            file.users = 0

    def __del__(self) -> None:
        for file in self._files.values():
            os.close(file.handle)


_pools: weakref.WeakSet[Descriptors] = weakref.WeakSet()


def _forget_parent() -> None:
    for pool in list(_pools):
        pool._after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parent)

_seek_lock = threading.Lock()


def _read_once(handle: int, size: int, offset: int) -> bytes:
    if hasattr(os, "pread"):
        return os.pread(handle, size, offset)
    with _seek_lock:  # Windows has no positioned reads
        os.lseek(handle, offset, os.SEEK_SET)
        return os.read(handle, size)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0))


def _unreadable(path: Path, problem: OSError) -> DataError:
    if isinstance(problem, FileNotFoundError):
        return DataError(f"{path}: the file is missing: copy or convert this class again")
    return DataError(f"{path}: it cannot be read ({problem.strerror}): check the disk and the permissions")
