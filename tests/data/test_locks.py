"""A file for one process at a time, where the file system can do that."""

import errno
import os
import sys
from pathlib import Path

import pytest

from fewshift.data.locks import hold
from fewshift.errors import DataError


def test_a_held_file_is_refused_until_it_is_closed(tmp_path: Path) -> None:
    with open(tmp_path / "file", "a") as first, open(tmp_path / "file", "a") as second:
        assert hold(first.fileno(), "it is in use")
        with pytest.raises(DataError, match="it is in use"):
            hold(second.fileno(), "it is in use")
        first.close()
        assert hold(second.fileno(), "it is in use")


@pytest.mark.skipif(sys.platform == "win32", reason="its file systems have locks")
@pytest.mark.parametrize("code", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_where_there_are_no_locks_nobody_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr("fcntl.flock", no_locks)
    with open(tmp_path / "file", "a") as file:
        assert not hold(file.fileno(), "it is in use")
