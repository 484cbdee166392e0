"""A hash of a domain's present images, so that what was made from earlier ones is not used for them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path

from fewshift.data.cache.files import PIXELS
from fewshift.data.cache.source import CachedSource
from fewshift.data.domain import Domain, ImageSource, Item
from fewshift.data.folder import FolderSource
from fewshift.data.records import RecordSource
from fewshift.data.subset import Renumbered

AT_ONCE = 64  # images that are read together


def image_state(domain: Domain, items: Sequence[Item]) -> str:
    """A hash that changes with these images: of the size and time of their files, or else of every pixel."""
    files = _files(domain.source)
    if files is not None:
        return hashlib.sha256(stamps(files)).hexdigest()
    digest = hashlib.sha256()
    for start in range(0, len(items), AT_ONCE):
        for image in domain.source.read(items[start : start + AT_ONCE]):
            digest.update(f"{image.shape} ".encode() + image.tobytes())
    return digest.hexdigest()


def stamps(files: Iterable[Path]) -> bytes:
    """A line for each file: its name, its size and when it was written."""
    statuses = ((path.name, path.stat()) for path in files)
    lines = (f"{name} {now.st_size} {now.st_mtime_ns}\n" for name, now in statuses)
    return "".join(lines).encode(errors="surrogateescape")  # a name need not be text


def _files(source: ImageSource) -> Iterable[Path] | None:
    """The files that hold the images; None where they are in memory, or it is not known."""
    if isinstance(source, RecordSource):
        return source.class_files()
    if isinstance(source, CachedSource):
        return [source.folder / PIXELS]
    if isinstance(source, Renumbered):
        return _files(source.source)
    if isinstance(source, FolderSource):
        return chain.from_iterable(source.files)
    return None
