"""Files that one process at a time may write, and work that one process at a time may do."""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fewshift.errors import DataError
from fewshift.progress import Track, silent

_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP)


def hold(fd: int, refusal: str) -> bool:
    """Hold an open file until it is closed or this process dies; refuse when another process holds it.

    False where the file system has no locks, as on some clusters: there nobody is refused.
    """
    try:
        if sys.platform == "win32":
            import msvcrt

            os.lseek(fd, 2**30, os.SEEK_SET)  # a byte far behind the content: readers are not in the way
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as problem:
        if problem.errno in _NO_LOCKS:
            return False
        raise DataError(refusal) from None
    return True


@contextmanager
def in_turn(path: Path, what: str, track: Track = silent) -> Iterator[None]:
    """Alone with a file of this name, which stays: whoever comes second waits, and is told for what."""
    with open(path, "ab") as file:
        if not _is_free(file.fileno()):
            for _ in track(_until_free(file.fileno()), label=f"waiting for another process {what}"):
                time.sleep(0.2)
        yield


def _until_free(fd: int) -> Iterator[None]:
    while not _is_free(fd):
        yield


def _is_free(fd: int) -> bool:
    try:
        hold(fd, "it is in use")
    except DataError:
        return False
    return True
