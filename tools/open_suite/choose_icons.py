"""Choose the icon classes: `python choose_icons.py FOLDER`, FOLDER holding the tarballs of the sets.

A class is a concept, an image one set's drawing of it. Words for one thing are one class (`home`, `house`);
words for several things (`apple`, `mouse`, `table`) and brands are left out. A drawing nearly equal to an
earlier one of the class is dropped, because small sets copy from large ones; so is a class that looks like an
earlier class.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
from common import archive_of, direction, split_classes, write_classes
from icon_words import LEFT_OUT, SAME, SETS, STYLES

from fewshift.data.open_suite.drawing import draw_svg
from fewshift.data.open_suite.iconify import IconSet, read_icon_set

LEAST, MOST, MOST_EQUAL, MOST_ALIKE = 10, 32, 0.96, 0.86


def main(folder: Path) -> None:
    """Read, choose, write."""
    sets = {name: read_icon_set(archive_of(folder, f"@iconify-json/{name}")) for name in SETS}
    candidates: dict[str, dict[str, tuple[int, str]]] = defaultdict(dict)
    for n, icons in sets.items():
        for icon, parts in icons.icons.items():
            word, lost = concept(icon)
            if set(parts) & {"rotate", "hFlip", "vFlip", "hidden"} or "<animate" in parts["body"]:
                continue
            if word not in LEFT_OUT and (n not in candidates[word] or lost < candidates[word][n][0]):
                candidates[word][n] = (lost, icon)
    wide = {w: {n: icon for n, (_, icon) in c.items()} for w, c in candidates.items() if len(c) >= LEAST}
    looks = {word: different(sets, pictures) for word, pictures in sorted(wide.items())}
    rich = {word: look for word, look in looks.items() if len(look) >= LEAST}
    chosen = thin_out(dict(sorted(rich.items(), key=lambda item: (-len(item[1]), item[0]))))
    pictures = {w: {n: wide[w][n] for n in sorted(looks[w])} for w in chosen}
    write_classes("icons", split_classes(chosen, seed=2), pictures)


def concept(icon: str) -> tuple[str, int]:
    """(what the icon shows, how many words of style its name had to lose)."""
    words = icon.split("-")
    while len(words) > 1 and words[-1] in STYLES:
        words.pop()
    bare = "-".join(words)
    return SAME.get(bare, bare), len(icon.split("-")) - len(words)


def different(sets: dict[str, IconSet], pictures: dict[str, str]) -> dict[str, np.ndarray]:
    """The drawings of one concept that are not nearly equal to an earlier one, as vectors."""
    kept: dict[str, np.ndarray] = {}
    for n in sorted(pictures, key=lambda n: SETS.index(n) * 37 % 101):  # so that `a...` is not always first
        look = direction(draw_svg(sets[n].svg(pictures[n], 32), "L"), 16, "L")
        if look.any() and len(kept) < MOST and all(look @ other < MOST_EQUAL for other in kept.values()):
            kept[n] = look
    return kept


def thin_out(looks: dict[str, dict[str, np.ndarray]]) -> list[str]:
    """Walk down the list and keep a class unless the sets draw it like one already kept."""
    kept: list[str] = []
    for word, look in looks.items():
        alike = 0.0
        for other in kept:
            shared = sorted(set(look) & set(looks[other]))
            if len(shared) >= 4:
                alike = max(alike, float(np.mean([look[n] @ looks[other][n] for n in shared])))
        if alike < MOST_ALIKE:
            kept.append(word)
    return kept


main(Path(sys.argv[1]))
