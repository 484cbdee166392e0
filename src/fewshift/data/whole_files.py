"""Files that are there whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """Write here; the file gets its name after the last byte is on the disk, or is removed on any error."""
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
