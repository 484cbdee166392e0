"""Which kit a classifier uses, loaded once per process, and the engine that runs it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import torch

from fewshift.data.pixels import PixelRule
from fewshift.errors import FewshiftError
from fewshift.evaluation.pixel_rule import pixel_rule
from fewshift.nets.bundled import default_kit_name, find_kit, kit_path
from fewshift.nets.choice import choose_engine
from fewshift.nets.device import device_named
from fewshift.nets.engine import Engine
from fewshift.nets.kit import Kit
from fewshift.nets.notices import say_once

KitLike: TypeAlias = "Kit | str | os.PathLike[str] | None"


@dataclass(frozen=True)
class Opened:
    """A kit ready for use."""

    name: str
    kit: Kit
    engine: Engine
    rule: PixelRule

    @property
    def device(self) -> torch.device:
        """Where the work is done."""
        return self.kit.backbone.device


def open_kit(kit: KitLike, device: str, engine: str, quiet: bool, precision: str = "auto") -> Opened:
    """The kit on its device; None is the best on validation among those installed, and is said."""
    where = choose_device(device)
    if isinstance(kit, Kit):
        own = kit if kit.backbone.device == where else kit.to(where)
        return Opened("own", own, choose_engine(own.backbone, engine, precision), pixel_rule(own))
    if not (kit is None or isinstance(kit, str | os.PathLike)):
        raise FewshiftError(
            f"kit is of type {type(kit).__name__}: give a kit, its file or a bundled one's name"
        )
    text = default_kit_name() if kit is None else os.fspath(kit)
    if kit is None and not quiet:
        say_once(
            f"using the kit {text}, the best on validation of those installed; kit= or --kit takes another"
        )
    path = kit_path(text)
    stamp = path.stat().st_mtime_ns if path.is_file() else 0
    return _opened(text, stamp, str(where), engine, precision)


def choose_device(name: str) -> torch.device:
    """The device of this name; for "auto" a GPU where there is one."""
    found = device_named(name, f"the device {name!r}", "'cpu'")
    return torch.empty(0, device=found).device  # with its number: one GPU has one name


@lru_cache(maxsize=2)
def _opened(text: str, stamp: int, device: str, engine: str, precision: str) -> Opened:
    name, kit = find_kit(text, device)
    return Opened(name, kit, choose_engine(kit.backbone, engine, precision), pixel_rule(kit))
