"""A contact sheet: some images of each domain, or of each class of one, with their names, as a PNG."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from fewshift.data.domain import Domain, Item, Pixels
from fewshift.data.whole_files import write_whole
from fewshift.errors import DataError
from fewshift.types import SPLITS

TILE, GAP, LABEL, LINE = 84, 4, 150, 18
PAPER, INK, FAINT = (255, 255, 255), (30, 30, 35), (110, 110, 120)


def contact_sheet(domains: Sequence[Domain], path: Path, *, per_domain: int = 12) -> None:
    """One row per domain: one image from each of `per_domain` classes spread over its splits."""
    if not domains:
        raise DataError(f"{path}: there is no domain to show")
    rows = []
    for domain in domains:
        items = _spread(domain, per_domain)
        counts = "/".join(str(len(domain.spec.splits[s])) for s in SPLITS)
        facts = [
            domain.role.replace("_", " "),
            f"{counts} classes",
            f"{sum(domain.spec.images_per_class):,} images",
        ]
        rows.append((domain.name, facts, domain.source.read(items)))
    _write(rows, path)


def class_sheet(domain: Domain, path: Path, *, classes: int = 12, per_class: int = 10) -> None:
    """One row per class of a domain."""
    chosen = [c for c, _ in _spread(domain, classes)]
    rows = []
    for c in chosen:
        count = domain.spec.images_per_class[c]
        images = domain.source.read([(c, i) for i in range(min(per_class, count))])
        rows.append((domain.spec.class_names[c], [f"class {c}", f"{count:,} images"], images))
    _write(rows, path)


def _spread(domain: Domain, count: int) -> list[Item]:
    """The first image of classes spread evenly over the ids, so that every split is seen."""
    filled = [c for c, images in enumerate(domain.spec.images_per_class) if images > 0]
    if not filled:
        raise DataError(f"{domain.name}: there is no image to show")
    count = min(count, len(filled))
    return [(filled[int(k * len(filled) / count)], 0) for k in range(count)]


def _write(rows: Sequence[tuple[str, Sequence[str], Sequence[Pixels]]], path: Path) -> None:
    across = max(len(images) for _, _, images in rows)
    size = (LABEL + across * (TILE + GAP) + GAP, len(rows) * (TILE + GAP) + GAP)
    sheet = Image.new("RGB", size, PAPER)
    pencil = ImageDraw.Draw(sheet)
    bold, plain = ImageFont.load_default(15), ImageFont.load_default(12)
    for number, (name, facts, images) in enumerate(rows):
        top = GAP + number * (TILE + GAP)
        pencil.text((GAP * 2, top + 8), _short(name), fill=INK, font=bold)
        for line, fact in enumerate(facts):
            pencil.text((GAP * 2, top + 30 + line * LINE * 0.85), fact, fill=FAINT, font=plain)
        for place, image in enumerate(images):
            sheet.paste(tile(image), (LABEL + place * (TILE + GAP), top))
    buffer = io.BytesIO()
    sheet.save(buffer, "PNG", optimize=True)
    try:
        write_whole(path, buffer.getvalue())
    except OSError as problem:
        raise DataError(
            f"{path}: cannot be written ({problem.strerror}): make room or give another place"
        ) from None


def tile(image: Pixels) -> Image.Image:
    """The image in a square of the sheet, its proportions kept."""
    picture = Image.fromarray(np.ascontiguousarray(image[..., 0] if image.shape[2] == 1 else image)).convert(
        "RGB"
    )
    scale = TILE / max(picture.size)
    small = picture.resize((max(1, round(picture.width * scale)), max(1, round(picture.height * scale))))
    square = Image.new("RGB", (TILE, TILE), (236, 236, 240))
    square.paste(small, ((TILE - small.width) // 2, (TILE - small.height) // 2))
    return square


def _short(name: str, longest: int = 18) -> str:
    return name if len(name) <= longest else name[: longest - 1] + "…"
