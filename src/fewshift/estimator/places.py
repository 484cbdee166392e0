"""Where files are written to."""

from __future__ import annotations

import os
from pathlib import Path

from fewshift.errors import FewshiftError


def check_place(path: str | os.PathLike[str]) -> None:
    """Refuse before the work where nothing can be written after it.

    That is a folder without the right to write, and a pipe or a device: a file that is written whole takes
    the place of what had its name.
    """
    there = Path(path)
    parent = there.absolute().parent
    if parent.is_dir() and not os.access(parent, os.W_OK | os.X_OK):
        raise FewshiftError(f"{path} cannot be written (no right to write in its folder): give another place")
    if there.exists() and not there.is_file() and not there.is_dir():
        raise FewshiftError(f"{path} is a pipe or a device, not a file: give the name of a file to write")
