"""A file that one process at a time may write."""

from __future__ import annotations

import os
import sys

from fewshift.errors import DataError


def hold(fd: int, refusal: str) -> None:
    """Hold an open file until it is closed or this process dies; refuse when another process holds it."""
    try:
        if sys.platform == "win32":
            import msvcrt

            os.lseek(fd, 2**30, os.SEEK_SET)  # a byte far behind the content: readers are not in the way
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        raise DataError(refusal) from None
