"""Tarballs in the shape of npm packages."""

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path


def packed(path: Path, files: Mapping[str, bytes], top: str = "package") -> Path:
    """A tarball as `npm pack` writes it."""
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(f"{top}/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path
