"""The user's cache folder, for what can be made again."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """FEWSHIFT_CACHE, or `fewshift` in the user's cache folder."""
    if own := os.environ.get("FEWSHIFT_CACHE"):
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "fewshift"
