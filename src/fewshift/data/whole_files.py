"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from fewshift.errors import FewshiftError


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """Write here; the file gets its name after the last byte is on the disk, or is removed on any error."""
    refuse_device(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / f".{path.name}.{secrets.token_hex(6)}.part"
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as problem:
        temporary.unlink(missing_ok=True)
        if isinstance(problem, OSError) and problem.filename in (None, str(temporary)):
            problem.filename = str(path)  # a full disk does not say where it is full
        raise


def write_whole(path: Path, content: bytes) -> None:
    """Write these bytes as one file."""
    with whole_file(path) as file:
        file.write(content)


def check_place(path: str | os.PathLike[str]) -> None:
    """Refuse before the work where nothing can be written after it: a folder without the right, a device."""
    there = Path(path)
    if there.is_dir():
        raise FewshiftError(f"{path} is a folder: give the name of a file")
    parent = there.absolute().parent
    if parent.is_dir() and not os.access(parent, os.W_OK | os.X_OK):
        raise FewshiftError(f"{path} cannot be written (no right to write in its folder): give another place")
    refuse_device(there)


def refuse_device(path: Path) -> None:
    """Refuse a pipe or a device: a file that is written whole takes the place of what had its name."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise FewshiftError(f"{path} is a pipe or a device, not a file: give the name of a file to write")
