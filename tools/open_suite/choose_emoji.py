"""Choose the emoji classes: `python choose_emoji.py FOLDER`, FOLDER holding the tarballs of the sets.

A class is one code point that at least eight of nine independently drawn sets show. Sets that share outlines
are left out (`fluent-emoji-high-contrast`, `fluent-emoji`, `emojione-monotone`), so no two images of a class
are one drawing. Of classes that look alike (neutral face, confused face, ...) the first is kept.
"""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from collections import defaultdict
from pathlib import Path

import numpy as np
from common import archive_of, direction, split_classes, write_classes

from fewshift.data.open_suite.archive import read_file
from fewshift.data.open_suite.drawing import draw_svg
from fewshift.data.open_suite.iconify import IconSet, read_icon_set

BY_CODE = ("noto", "twemoji", "openmoji", "fluent-emoji-flat")  # these say which code point an icon shows
BY_NAME = ("noto-v1", "emojione", "emojione-v1", "fxemoji", "streamline-emojis")
LEAST, MOST_ALIKE, CLASSES = 8, 0.92, 450
SIZES = {"small", "medium", "large"}  # black-small-square, black-medium-square: one shape in several sizes


def squash(name: str) -> str:
    """The letters and digits of a name."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def main(folder: Path) -> None:
    """Read, choose, write."""
    archives = {name: archive_of(folder, f"@iconify-json/{name}") for name in BY_CODE + BY_NAME}
    sets = {name: read_icon_set(path) for name, path in archives.items()}
    codes = {n: {k.replace("-fe0f", ""): v for k, v in _codes(archives[n]).items()} for n in BY_CODE}
    names = names_by_code(sets, codes)
    owners = defaultdict(set)
    for code, known in names.items():
        for name in known:
            owners[name].add(code)
    found: dict[str, dict[str, str]] = {}
    for code, known in names.items():
        if not plain(code):
            continue
        pictures = {n: codes[n][code] for n in BY_CODE if code in codes[n]}
        for n in BY_NAME:
            for icon in [*sets[n].icons, *sets[n].aliases]:
                bare = squash(re.sub(r"-\d$", "", icon) if n == "streamline-emojis" else icon)
                if bare in known and owners[bare] == {code}:
                    pictures[n] = icon
                    break
        name = codes["noto"].get(code) or codes["twemoji"].get(code, "")
        if len(pictures) >= LEAST and not SIZES & set(name.split("-")):
            found[name] = pictures
    chosen = thin_out(sets, dict(sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))))
    write_classes("emoji", split_classes(chosen, seed=1), {c: dict(sorted(found[c].items())) for c in chosen})


def _codes(archive: Path) -> dict[str, str]:
    return dict(json.loads(read_file(archive, "chars.json")))


def plain(code: str) -> bool:
    """One code point; no skin tone, no letter of a flag, no keycap."""
    if "-" in code:
        return False
    value = int(code, 16)
    return value > 0xFF and not 0x1F3FB <= value <= 0x1F3FF and not 0x1F1E6 <= value <= 0x1F1FF


def names_by_code(sets: dict[str, IconSet], codes: dict[str, dict[str, str]]) -> dict[str, set[str]]:
    """Every squashed name that a code point goes by: the sets' names and aliases, and Unicode's own."""
    names: dict[str, set[str]] = defaultdict(set)
    for n in BY_CODE:
        others = defaultdict(list)
        for alias, target in sets[n].aliases.items():
            others[target["parent"]].append(alias)
        for code, icon in codes[n].items():
            names[code] |= {squash(name) for name in [icon, *others[icon]]}
    for code in names:
        official = unicodedata.name(chr(int(code, 16)), "") if "-" not in code else ""
        if official:
            drop = ("", "BLACK ", " SIGN", " SYMBOL", " ABOVE")
            names[code] |= {squash(official.replace(word, "")) for word in drop}
    return names


def thin_out(sets: dict[str, IconSet], found: dict[str, dict[str, str]]) -> list[str]:
    """Walk down the list and keep a class unless it looks like one already kept."""
    kept: list[str] = []
    looks: list[np.ndarray] = []  # (sets, values) a class; zeros where a set has no picture
    for name, pictures in found.items():
        look = np.zeros((len(sets), 16 * 16 * 3))
        for row, n in enumerate(sets):
            if n in pictures:
                look[row] = direction(draw_svg(sets[n].svg(pictures[n], 32), "RGB"), 16)
        drawn = look.any(axis=1)
        alike = [(look * other).sum(1)[drawn & other.any(axis=1)].mean() for other in looks]
        if not alike or max(alike) < MOST_ALIKE:
            kept.append(name)
            looks.append(look)
        if len(kept) == CLASSES:
            break
    return kept


main(Path(sys.argv[1]))
