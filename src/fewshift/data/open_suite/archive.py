"""Reading packages without unpacking them: nothing inside a tarball can choose where it lands."""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from fewshift.errors import DataError

LARGEST_FILE = 64 << 20  # bytes; the largest file that any source reads is a third of it


def read_files(
    archive: Path, wanted: Callable[[str], bool], largest: int = LARGEST_FILE
) -> Iterator[tuple[str, bytes]]:
    """(path below the package's top folder, content) of the wanted regular files, in the archive's order."""
    try:
        with tarfile.open(archive, "r|gz") as tar:
            for member in tar:
                path = member.name.partition("/")[2]
                if not member.isfile() or not wanted(path):
                    continue
                if member.size > largest:
                    raise DataError(
                        f"{archive}: {path} says it has {member.size} bytes, more than the {largest} allowed"
                    )
                content = tar.extractfile(member)
                if content is not None:
                    yield path, content.read()
    except (tarfile.TarError, EOFError, zlib.error, OSError) as problem:
        raise DataError(f"{archive}: cannot be read ({problem}): delete it and fetch again") from problem


def read_file(archive: Path, path: str, largest: int = LARGEST_FILE) -> bytes:
    """The content of one file."""
    for _, content in read_files(archive, lambda p: p == path, largest):
        return content
    raise DataError(f"{archive}: there is no {path} inside: delete the archive and fetch again")
