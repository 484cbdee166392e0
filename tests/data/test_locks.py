"""A file for one process at a time, where the file system can do that."""

import errno
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fewshift.data.locks import hold, in_turn
from fewshift.errors import DataError


def test_a_held_file_is_refused_until_it_is_closed(tmp_path: Path) -> None:
    with open(tmp_path / "file", "a") as first, open(tmp_path / "file", "a") as second:
        assert hold(first.fileno(), "it is in use")
        with pytest.raises(DataError, match="it is in use"):
            hold(second.fileno(), "it is in use")
        first.close()
        assert hold(second.fileno(), "it is in use")


def test_who_comes_second_waits_and_is_told(tmp_path: Path) -> None:
    told: list[str] = []
    order: list[str] = []

    def track(items: Iterable[Any], /, *, label: str, total: int | None = None) -> Iterator[Any]:
        told.append(label)
        for item in items:
            order.append("waits")
            first.close()
            yield item

    first = open(tmp_path / "lock", "ab")  # noqa: SIM115
    hold(first.fileno(), "")
    with in_turn(tmp_path / "lock", "that paints", track):
        order.append("works")
    assert told == ["waiting for another process that paints"]
    assert order == ["waits", "works"]
    with in_turn(tmp_path / "lock", "that paints"):
        pass


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
