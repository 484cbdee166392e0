"""A file that one process at a time may write."""

from __future__ import annotations

import errno
import os
import sys

from fewshift.errors import DataError

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
