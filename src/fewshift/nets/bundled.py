"""Kits by name: those that come with the package, and the best of them as the default."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from fewshift.errors import FewshiftError
from fewshift.nets.architectures import available, bare_kit
from fewshift.nets.kit import KIT, Kit, load_kit
from fewshift.nets.notices import say_once
from fewshift.nets.tensor_file import read_header

KITS = Path(__file__).parent.parent / "kits"


def bundled_kits() -> dict[str, Path]:
    """The kits inside the package, by name."""
    return {path.stem: path for path in sorted(KITS.glob("*.kit"))}


def default_kit_name() -> str:
    """The bundled kit with the best accuracy on validation tasks, see `validation_score`.

    Kits of networks whose extra is not installed do not count, and a kit that does not say its score comes
    after those that do.
    """
    headers = {name: read_header(path, KIT) for name, path in bundled_kits().items()}
    usable = {name: h for name, h in headers.items() if h["weights"] or available(h["architecture"])}
    if not usable:
        raise FewshiftError("no kit is bundled with this Fewshift: name a kit file")
    return max(usable, key=lambda name: validation_score(usable[name]["info"]))


def kit_path(name: str | Path) -> Path:
    """Where the kit of this name is: the bundled one, or else a file, which need not be there.

    A bundled kit's name means the same in every folder, whatever lies there.
    """
    path, bundled = Path(name), bundled_kits().get(str(name))
    if bundled is None:
        return path
    if path.is_file():
        say_once(f"{name} is the kit that comes with Fewshift; ./{name} is the file of this name")
    return bundled


def find_kit(name_or_path: str | None, device: torch.device | str = "cpu") -> tuple[str, Kit]:
    """A kit and the name results give it: a bundled one by its name, a file, or None for the default.

    `timm:MODEL` also names a kit of that network alone, from which kits can be trained, and so does `lite0`
    where no kit of that name is bundled.
    """
    text = default_kit_name() if name_or_path is None else name_or_path
    path = kit_path(text)
    if not path.exists():
        bare = bare_kit(text)
        if bare is None:
            kits = bundled_kits()
            known = f" or one of {', '.join(kits)}" if kits else ""
            raise FewshiftError(
                f"there is no kit {text!r}, neither a file nor a bundled one: give a kit's file{known}"
            )
        return text, bare.to(device)
    return path.stem, load_kit(text, device)


def validation_score(info: Mapping[str, Any]) -> float:
    """What a kit says of its accuracy on validation tasks; minus infinity where it says nothing.

    That is `validation.default_score`, which `fewshift bench kits --write` puts there after the same tasks
    for every kit, or else the best method's mean over both kinds of domains at the rates that `fewshift train
    rates` chose for it.
    """
    told = info.get("validation", {}).get("default_score")
    if told is not None:
        return float(told)
    found = []
    for kinds in info.get("rates_tried", {}).values():
        best = [max(row[-1] for row in rows) for rows in kinds.values()]
        found.append(sum(best) / len(best))
    return max(found, default=float("-inf"))
