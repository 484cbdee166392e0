"""Icon sets as the `@iconify-json` packages carry them: SVG bodies by name, aliases, a common box."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fewshift.data.open_suite.archive import read_file

_HEAD = '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '


@dataclass(frozen=True)
class IconSet:
    """One set: its icons, other names of them, and the defaults for what an icon does not say."""

    name: str
    icons: Mapping[str, Mapping[str, Any]]
    aliases: Mapping[str, Mapping[str, Any]]
    box: Mapping[str, float]  # left, top, width, height

    def svg(self, name: str, size: int) -> str:
        """The icon as a square SVG document; what is not square is centred."""
        parts: dict[str, Any] = {}
        while name in self.aliases:
            parts = {**self.aliases[name], **parts}
            name = str(self.aliases[name]["parent"])
        parts = {**self.box, **self.icons[name], **parts}
        if parts.get("rotate") or parts.get("hFlip") or parts.get("vFlip"):
            raise ValueError(
                f"{self.name}: {name} is turned or mirrored, which the class lists must not name"
            )
        view = " ".join(str(parts[side]) for side in ("left", "top", "width", "height"))
        return f'{_HEAD}width="{size}" height="{size}" viewBox="{view}">{parts["body"]}</svg>'


def read_icon_set(archive: Path) -> IconSet:
    """The icon set in an `@iconify-json` package."""
    content = json.loads(read_file(archive, "icons.json"))
    box = {"left": 0, "top": 0, "width": 16, "height": 16}
    return IconSet(
        name=content["prefix"],
        icons=content["icons"],
        aliases=content.get("aliases", {}),
        box=box | {side: content[side] for side in box if side in content},
    )
