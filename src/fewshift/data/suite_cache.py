"""Where the pixel caches of records lie, and whether one still belongs to its records.

The caches of the domains in one folder lie side by side, one folder per domain, in the user's cache folder;
each has a note of the class files it was made from, so that records that were converted anew are never read
from old pixels.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Literal

from fewshift.data.cache import build_cache, open_cached, read_info
from fewshift.data.cache.files import INFO, JOURNAL, OFFSETS, PIXELS, SHAPES
from fewshift.data.domain import Domain
from fewshift.data.records import RecordSource
from fewshift.data.state import stamps
from fewshift.data.user_cache import cache_of_folder
from fewshift.data.whole_files import write_whole
from fewshift.errors import DataError
from fewshift.progress import Track, silent

NOTE = "made-from.json"


def caches_of(root: Path) -> Path:
    """The usual folder for the caches of the domains in this folder."""
    return cache_of_folder("pixels", root)


def cache_of(folder: Path) -> Path:
    """The usual folder for the cache of the domain in this folder."""
    return caches_of(folder.resolve().parent) / folder.resolve().name


def keep_pixels(domain: Domain, folder: Path, track: Track = silent) -> bool:
    """Make the domain's cache in this folder; False when a current one is there already."""
    state = cache_state(domain, folder)
    if state in ("exact", "rounded"):
        return False
    try:
        if state != "unfinished":  # with such a one it goes on
            _clear(folder)
        write_whole(folder / NOTE, _note(domain))
    except OSError as problem:
        raise DataError(
            f"{folder}: it cannot be written ({problem.strerror}): choose another folder with --to, or set "
            "FEWSHIFT_CACHE to one"
        ) from problem
    build_cache(_stored(domain), folder, track)
    return True


def with_exact_caches(domains: Iterable[Domain]) -> tuple[Domain, ...]:
    """The same domains; those that have a current cache which rounds nothing are read from it."""
    return tuple(from_cache(domain, "exact") or domain for domain in domains)


def from_cache(domain: Domain, state: Literal["exact", "rounded"]) -> Domain | None:
    """The domain read from its usual cache, where that is in this state; else None."""
    if not isinstance(domain.source, RecordSource):
        return None
    folder = cache_of(domain.source.folder)
    if cache_state(domain, folder) != state:
        return None
    return replace(domain, source=open_cached(_stored(domain), folder).source)


def cache_state(
    domain: Domain, folder: Path
) -> Literal["none", "outdated", "unfinished", "exact", "rounded"]:
    """Whether there is a cache, whether it is of these records, whole, and keeps every pixel as it is."""
    try:
        note = (folder / NOTE).read_bytes()
    except OSError:
        return "none"
    if note != _note(domain):
        return "outdated"
    try:
        return "rounded" if read_info(folder).rounded else "exact"
    except DataError:
        return "unfinished"


def _stored(domain: Domain) -> Domain:
    """The domain under the name that its records have: a suite may call it otherwise."""
    return replace(domain, spec=domain.source.spec) if isinstance(domain.source, RecordSource) else domain


def _note(domain: Domain) -> bytes:
    """What the records are now: their folder, their spec, and the size and time of every class file."""
    digest = hashlib.sha256(_stored(domain).spec.fingerprint().encode())
    where = ""
    if isinstance(domain.source, RecordSource):
        where = str(domain.source.folder.resolve())
        digest.update(stamps(domain.source.class_files()))
    return json.dumps({"records": where, "state": digest.hexdigest()}).encode()


def _clear(folder: Path) -> None:
    """Remove an outdated cache, and nothing that is none."""
    if not folder.is_dir():
        return
    if any(folder.iterdir()) and not (folder / NOTE).exists():
        raise DataError(
            f"{folder}: it holds something else than a cache made by `fewshift data cache`: choose "
            "another folder or remove it"
        )
    for name in (INFO, JOURNAL, PIXELS, SHAPES, OFFSETS, NOTE):
        (folder / name).unlink(missing_ok=True)
