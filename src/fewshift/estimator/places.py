"""Where files are written to."""

from __future__ import annotations

import os
from pathlib import Path

from fewshift.errors import FewshiftError


def check_place(path: str | os.PathLike[str]) -> None:
    """Refuse a pipe or a device: a file that is written whole takes the place of what had its name."""
    there = Path(path)
    if there.exists() and not there.is_file() and not there.is_dir():
        raise FewshiftError(f"{path} is a pipe or a device, not a file: give the name of a file to write")
