"""Choose the glyph classes: `python choose_glyphs.py FOLDER`, FOLDER holding `@fontsource` tarballs.

A class is a character, an image one font family's regular style of it. Two domains that share neither a
script nor a font: `glyphs` to train on, `scripts` (Khmer and Telugu letters) to choose settings for domains
nobody trained on. Characters that look alike up to size and place (c and C, Latin A and Greek Alpha) are one
class: the first stays.
"""

from __future__ import annotations

import io
import json
import re
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
from common import split_classes, write_classes
from PIL import Image, ImageFilter, ImageFont

from fewshift.data.open_suite.archive import read_files

# Without what is another script's letter to the eye (Greek Alpha, Cyrillic Er, rings, bars).
LATIN = "abdeghmnqrtABDEGHQRMNLFJPKTY23456789&?!@#%$§€£ßæøþðÆkpyfijcosuvwxzIlO01CSUVWXZ{}[]<>+=~*/"
GREEK = "ΓΔΘΛΞΠΣΦΨΩαβγδεζηθλμξπρςσφψωτκ"
CYRILLIC = "БДЖЗИЙЛЦЧШЩЫЭЮЯЪЬФУГПбвгджзиклмнптцчшщъыьэюяйфЁЄЇҐЋЉЊЏ"
LETTERS = {
    "latin": LATIN,
    "greek": GREEK,
    "cyrillic": CYRILLIC,
    "hebrew": "אבגדהוזחטיכךלמםנןסעפףצץקרשת",
    "arabic": "بتثجحخدذرزسشصضطظعغفقكلمنهويءةىآأإؤئ٠١٢٣٤٥٦٧٨٩",
    "devanagari": "अआइईउऊऋएऐओऔकखगघङचछजझञटठडढणतथदधनपफबभमयरलवशषसहळ०१२३४५६७८९",
    "thai": "กขคฆงจฉชซฌญฎฏฐฑฒณดตถทธนบปผฝพฟภมยรลวศษสหฬอฮ๑๒๓๔๕๖๗๘๙",
    "khmer": "កខគឃងចឆជឈញដឋឌឍណតថទធនបផពភមយរលវសហឡអឥឦឧឩឪឫឬឭឮឯឰឱឳ០១២៣៤៥៦៧៨៩",
    "telugu": "అఆఇఈఉఊఋఎఏఐఒఓఔకఖగఘఙచఛజఝఞటఠడఢణతథదధనపఫబభమయరఱలళవశషసహ౧౨౩౪౫౬౭౮౯",
}
DOMAINS = {
    "glyphs": ("latin", "greek", "cyrillic", "hebrew", "arabic", "devanagari", "thai"),
    "scripts": ("khmer", "telugu"),
}
PER_SCRIPT = {
    "latin": 40,
    "greek": 24,
    "cyrillic": 24,
    "hebrew": 14,
    "arabic": 20,
    "devanagari": 20,
    "thai": 13,
}
LARGEST, LEAST, MOST_ALIKE, SAME_OUTLINES = 700_000, 10, 0.90, 0.965
ODD = {"handjet", "blaka-hollow", "flow-block", "flow-circular", "flow-rounded"}  # bars and boxes for letters


def main(folder: Path) -> None:
    """Read, choose, write."""
    fonts: dict[str, dict[str, bytes]] = defaultdict(dict)  # script -> family -> woff2
    sizes: dict[str, int] = {}
    for archive in sorted(folder.glob("fontsource-*.tgz")):
        family = re.sub(r"^fontsource-|-\d+\.\d+\.\d+\.tgz$", "", archive.name)
        if archive.stat().st_size > LARGEST or family in ODD:
            continue
        content = dict(
            read_files(
                archive, lambda p: p.endswith(("-400-normal.woff2", "-400-normal.woff", "package.json"))
            )
        )
        if json.loads(content["package.json"])["license"] != "OFL-1.1":
            continue
        sizes[family] = archive.stat().st_size
        for script in LETTERS:
            path = f"files/{family}-{script}-400-normal.woff2"
            if path in content:
                fonts[script][family] = content[path]
    strange = {family for script in DOMAINS["scripts"] for family in fonts[script]}
    for domain, scripts in DOMAINS.items():
        pictures: dict[str, dict[str, list[str]]] = {}
        used: set[str] = set()
        for script in reversed(scripts):  # Latin last: it reuses the families that other scripts brought
            families = [f for f in fonts[script] if (f in strange) == (domain == "scripts")]
            if script == "latin":
                families = [f for f in families if f in used and two_cases(fonts[script][f])]
            families = sorted(families, key=lambda f: (f not in used, sizes[f]))
            families = distinct(fonts[script], families, LETTERS[script])[: PER_SCRIPT.get(script, 24)]
            used |= set(families)
            covered = {f: coverage(fonts[script][f], LETTERS[script]) for f in families}
            for character in LETTERS[script]:
                having = [f for f in families if character in covered[f]]
                if len(having) >= LEAST:
                    pictures[character] = {script: sorted(having)}
        order = sorted(pictures, key=lambda c: ("".join(LETTERS[s] for s in scripts)).index(c))
        chosen = thin_out({c: {f: fonts[s][f] for s, fs in pictures[c].items() for f in fs} for c in order})
        left = {f for c in chosen for families in pictures[c].values() for f in families}
        print(domain, len(left), "families,", sum(sizes[f] for f in left) / 1e6, "MB")
        splits = (
            split_classes(chosen, seed=3)
            if domain == "glyphs"
            else {"train": [], "valid": [], "test": chosen}
        )
        write_classes(domain, splits, pictures)


def load(woff2: bytes, size: int) -> ImageFont.FreeTypeFont:
    """The font without text shaping, as the suite draws it."""
    return ImageFont.truetype(io.BytesIO(woff2), size, layout_engine=ImageFont.Layout.BASIC)


def coverage(woff2: bytes, characters: str) -> set[str]:
    """The characters that the font draws otherwise than a character no font has."""
    font = load(woff2, 32)
    nothing = bytes(font.getmask("\U0010fffd"))
    masks = {c: bytes(font.getmask(c)) for c in characters}
    return {c for c, mask in masks.items() if any(mask) and mask != nothing}


def distinct(fonts: dict[str, bytes], families: list[str], letters: str) -> list[str]:
    """The families without those whose letters are an earlier family's."""
    kept: dict[str, np.ndarray] = {}
    for family in families:
        look = np.stack([tight(fonts[family], c) for c in letters[:: max(1, len(letters) // 12)]])
        alike = [((look * other).sum(1).mean(), f) for f, other in kept.items()]
        if alike and max(alike)[0] > SAME_OUTLINES:
            print(f"{family} is drawn like {max(alike)[1]} ({max(alike)[0]:.3f})", end="; ")
        else:
            kept[family] = look
    return list(kept)


def two_cases(woff2: bytes) -> bool:
    """A font whose small letters are capitals would put A into class a."""
    return (
        likeness(tight(woff2, "a"), tight(woff2, "A")) < 0.9
        and likeness(tight(woff2, "g"), tight(woff2, "G")) < 0.9
    )


def tight(woff2: bytes, character: str) -> np.ndarray:
    """The character's ink scaled to fill a square, as a vector of length one."""
    mask = load(woff2, 96).getmask(character, mode="L")
    if 0 in mask.size:
        return np.zeros(24 * 24)
    ink = Image.frombytes("L", mask.size, bytes(mask))
    box = ink.getbbox()
    if box is None:
        return np.zeros(24 * 24)
    ink = ink.crop(box)
    side = max(ink.size)
    square = Image.new("L", (side, side))
    square.paste(ink, ((side - ink.width) // 2, (side - ink.height) // 2))
    small = square.resize((24, 24), Image.Resampling.BOX).filter(ImageFilter.GaussianBlur(1))
    values = np.asarray(small, dtype=float).ravel()
    return values / (np.linalg.norm(values) + 1e-9)


def likeness(one: np.ndarray, other: np.ndarray) -> float:
    """1: the same shape."""
    return float(one @ other)


def thin_out(fonts: dict[str, dict[str, bytes]]) -> list[str]:
    """Keep a character unless, font by font, it has the shape of one already kept."""
    looks = {c: {f: tight(data, c) for f, data in by.items()} for c, by in fonts.items()}
    kept: list[str] = []
    for c, look in looks.items():
        most, which = 0.0, ""
        for other in kept:
            shared = sorted(set(look) & set(looks[other]))
            if len(shared) >= 5:
                alike = float(np.median([likeness(look[f], looks[other][f]) for f in shared]))
                if alike > most:
                    most, which = alike, other
        if most < MOST_ALIKE:
            kept.append(c)
        else:
            print(f"{c} looks like {which} ({most:.2f})", end="; ")
    print()
    return kept


main(Path(sys.argv[1]))
