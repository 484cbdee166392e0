"""Which kit a classifier uses, loaded once a process."""

from __future__ import annotations

import logging
import os
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

import torch

from fewshift.errors import FewshiftError
from fewshift.nets.bundled import bundled_kits, default_kit_name, find_kit
from fewshift.nets.kit import Kit

KitLike: TypeAlias = "Kit | str | os.PathLike[str] | None"
log = logging.getLogger("fewshift")


def resolve(kit: KitLike, device: torch.device, quiet: bool) -> tuple[str, Kit]:
    """The kit and its name; None is the best on validation among those installed, and is said."""
    if isinstance(kit, Kit):
        return str(kit.info.get("name", "own")), kit.to(device) if kit.backbone.device != device else kit
    text = default_kit_name() if kit is None else os.fspath(kit)
    if kit is None and not quiet:
        _say_once(text)
    path = Path(text) if Path(text).is_file() else bundled_kits().get(text)
    stamp = path.stat().st_mtime_ns if path is not None else 0
    return _loaded(text, stamp, str(device))


def choose_device(name: str) -> torch.device:
    """The device of this name; for "auto" a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.zeros(1, device=torch.device(name)).device
    except (RuntimeError, AssertionError, TypeError) as problem:
        reason = str(problem).split("\n")[0]
        raise FewshiftError(f"the device {name!r} cannot be used here ({reason}): try 'cpu'") from None


@lru_cache(maxsize=2)
def _loaded(text: str, stamp: int, device: str) -> tuple[str, Kit]:
    return find_kit(text, device)


@lru_cache(maxsize=1)
def _say_once(name: str) -> None:
    log.warning("using the bundled kit %s; kit= takes another", name)
