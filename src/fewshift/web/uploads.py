"""What a browser sent, checked before anything is decoded.

Names of uploaded files are words to show and nothing else: no path is made of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fewshift.data.decoding import open_picture
from fewshift.errors import DataError, FewshiftError
from fewshift.web.limits import LIMITS
from fewshift.web.upload_names import without_mark

SHOWN = 40  # characters of a file's name


@dataclass(frozen=True)
class Upload:
    """An encoded picture and the name it is shown under."""

    name: str
    content: bytes


@dataclass(frozen=True)
class ClassUploads:
    """A class as the page has it."""

    name: str
    uploads: tuple[Upload, ...]


def read_uploads(files: Sequence[str | Path], inside: Path) -> tuple[Upload, ...]:
    """The files that the server stored below `inside`, whole and within the limits."""
    return tuple(_read(Path(file), inside) for file in files)


def _read(file: Path, inside: Path) -> Upload:
    shown = shown_name(without_mark(file.name))
    if not file.resolve().is_relative_to(inside.resolve()):
        raise FewshiftError(f"{shown} was not uploaded here: drop the image onto the page")
    if not file.is_file():
        raise FewshiftError(f"{shown} is not here any more, uploads are kept for an hour: drop it again")
    size = file.stat().st_size
    if size > LIMITS.file_bytes:
        raise FewshiftError(
            f"{shown} has {size / 1e6:.1f} MB, over the limit of {LIMITS.file_bytes / 1e6:.0f} MB: "
            "make it smaller first"
        )
    content = file.read_bytes()
    try:
        width, height = open_picture(content, shown).size
    except DataError:
        raise
    except Exception as problem:  # the plugins raise a dozen kinds on damaged headers
        raise DataError(f"{shown}: the picture is damaged: copy it again from its source") from problem
    if width * height > LIMITS.pixels:
        raise FewshiftError(
            f"{shown} has {width:,} x {height:,} pixels, over the limit of "
            f"{LIMITS.pixels / 1e6:.0f} million: make it smaller first"
        )
    return Upload(shown, content)


def checked_classes(classes: Sequence[ClassUploads]) -> tuple[ClassUploads, ...]:
    """The classes that have images, or one sentence about what is wrong with them."""
    found = []
    for place, entry in enumerate(classes, 1):
        name = " ".join(entry.name.split())
        if entry.uploads:
            found.append(ClassUploads(name or f"class {place}", entry.uploads))
        elif name and name != f"class {place}":
            raise FewshiftError(f"the class {name!r} has no image: drop at least one into it")
    if len(found) < LIMITS.least_classes:
        raise FewshiftError(
            f"{len(found) or 'none'} of the classes has images: drop images into two classes at least"
        )
    for entry in found:
        if len(entry.name) > LIMITS.name_length:
            raise FewshiftError(
                f"the name {shown_name(entry.name)!r} has {len(entry.name)} characters: "
                f"{LIMITS.name_length} are the most"
            )
        if len(entry.uploads) > LIMITS.images_a_class:
            raise FewshiftError(
                f"the class {entry.name!r} has {len(entry.uploads)} images: "
                f"{LIMITS.images_a_class} are the most on this page, fewshift fit takes more"
            )
    names = [entry.name for entry in found]
    if twice := [name for name in names if names.count(name) > 1]:
        raise FewshiftError(f"two classes are called {twice[0]!r}: give each class its own name")
    total = sum(len(entry.uploads) for entry in found)
    if total > LIMITS.images:
        raise FewshiftError(
            f"there are {total} images: {LIMITS.images} are the most on this page, fewshift fit takes more"
        )
    return tuple(found)


def shown_name(name: str) -> str:
    """A name fit for a sentence: printable, on one line, not too long."""
    clean = re.sub(r"\s+", " ", "".join(c if c.isprintable() else " " for c in name)).strip() or "image"
    return clean if len(clean) <= SHOWN else f"{clean[: SHOWN - 12]}…{clean[-10:]}"
