"""The user's cache folder, for what can be made again."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def cache_folder() -> Path:
    """FEWSHIFT_CACHE, or `fewshift` in the user's cache folder."""
    if own := os.environ.get("FEWSHIFT_CACHE"):
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "fewshift"


def cache_of_folder(kind: str, folder: Path, suffix: str = "") -> Path:
    """Where things of this kind are kept that were made of what is in this folder."""
    whole = folder.resolve()
    digest = hashlib.sha256(os.fsencode(whole)).hexdigest()[:16]
    return cache_folder() / kind / f"{whole.name}-{digest}{suffix}"
