"""Reading packages without unpacking them: nothing inside a tarball can choose where it lands.

Their content is that of the pinned checksums, which `npm.py` has looked at, so it is not checked again.
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path


def read_files(archive: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """(path below the package's top folder, content) of the wanted regular files, in the archive's order."""
    with tarfile.open(archive, "r|gz") as tar:
        for member in tar:
            path = member.name.partition("/")[2]
            if member.isfile() and wanted(path) and (content := tar.extractfile(member)):
                yield path, content.read()


def read_file(archive: Path, path: str) -> bytes:
    """The content of one file."""
    for _, content in read_files(archive, path.__eq__):
        return content
    raise KeyError(f"{archive}: there is no {path} inside")
