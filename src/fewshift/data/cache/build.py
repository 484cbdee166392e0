"""Making a cache and checking it."""

from __future__ import annotations

import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from fewshift.data.cache.files import (
    IMAGES_AT_ONCE,
    INFO,
    JOURNAL,
    OFFSETS,
    PIXELS,
    REMEDY,
    SHAPES,
    CacheInfo,
    read_info,
)
from fewshift.data.cache.journal import Part, append, finished_parts, open_journal
from fewshift.data.cache.source import open_cached
from fewshift.data.domain import Domain, Item, Pixels
from fewshift.data.pixels import PROTOCOL_84
from fewshift.data.resize import resize_aligned
from fewshift.data.spec import Spec
from fewshift.data.whole_files import whole_file, write_whole
from fewshift.errors import DataError
from fewshift.progress import Track, silent

SIDE = PROTOCOL_84.size
READ_AT_ONCE = 64
WORKERS = 2
SAMPLES = 256  # images of a cache that are compared with the domain's own


def build_cache(domain: Domain, folder: Path, track: Track = silent) -> None:
    """Make the domain's cache in this folder or go on with an unfinished one; leave a finished one alone."""
    spec = domain.spec
    if not _items(spec):
        raise DataError(f"{spec.name}: there are no images to keep in a cache")
    if (folder / INFO).is_file():
        if read_info(folder).spec != spec.fingerprint():
            raise DataError(f"{folder}: this is the cache of other data than {spec.name}: {REMEDY}")
        return
    about = {"spec": spec.fingerprint(), "images_at_once": IMAGES_AT_ONCE}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with open_journal(folder) as journal:
            parts = finished_parts(folder, journal, about, spec.name)
            _add_parts(domain, folder, journal, parts, track)
            _finish(domain, folder, parts)
        (folder / JOURNAL).unlink(missing_ok=True)
    except OSError as problem:
        raise DataError(
            f"{folder}: the cache of {spec.name} could not be written ({problem.strerror or problem}): "
            "mend that and run the same command again, it goes on where it stopped"
        ) from problem


def _items(spec: Spec) -> list[Item]:
    """All images, in the cache's order."""
    return [(c, i) for c, count in enumerate(spec.images_per_class) for i in range(count)]


def _add_parts(domain: Domain, folder: Path, journal: IO[bytes], parts: list[Part], track: Track) -> None:
    """Write the images that come after these parts, and add theirs."""
    items = _items(domain.spec)
    starts = range(len(parts) * IMAGES_AT_ONCE, len(items), IMAGES_AT_ONCE)
    with open(folder / PIXELS, "a+b") as pixels, ThreadPoolExecutor(WORKERS) as pool:
        pixels.truncate(sum(part.size for part in parts))
        for start in track(starts, label=f"cache {domain.name}", total=len(starts)):
            wanted = items[start : start + IMAGES_AT_ONCE]
            reads = [wanted[at : at + READ_AT_ONCE] for at in range(0, len(wanted), READ_AT_ONCE)]
            stored = [one for some in pool.map(lambda few: _read(domain, few), reads) for one in some]
            content = b"".join(planes.tobytes() for planes, _ in stored)
            shapes = np.array([(*planes.shape[1:], planes.shape[0]) for planes, _ in stored], np.uint8)
            rounded = sum(resized for _, resized in stored)
            pixels.write(content)
            pixels.flush()
            os.fsync(pixels.fileno())
            parts.append(Part(shapes, hashlib.sha256(content).hexdigest(), rounded))
            append(journal, parts[-1].fields())


def _read(domain: Domain, items: list[Item]) -> list[tuple[Pixels, bool]]:  # (c, h, w) each
    try:
        images = domain.source.read(items)
    except OSError as problem:  # not the cache's fault: keep the two apart
        raise DataError(f"{domain.name}: an image could not be read: {problem}") from problem
    return [stored_form(image) for image in images]


def stored_form(image: Pixels) -> tuple[Pixels, bool]:  # (h, w, c) -> (c, h, w)
    """The image as the cache keeps it, and whether it had to be resized for that."""
    planes = np.ascontiguousarray(image.transpose(2, 0, 1))
    if len(planes) == 3 and np.array_equal(planes[0], planes[1]) and np.array_equal(planes[0], planes[2]):
        planes = planes[:1]
    if max(planes.shape[1:]) <= SIDE:
        return planes, False
    return np.rint(resize_aligned(planes, SIDE)).astype(np.uint8), True


def _finish(domain: Domain, folder: Path, parts: list[Part]) -> None:
    shapes = np.concatenate([part.shapes for part in parts])
    for name, numbers in ((SHAPES, shapes), (OFFSETS, _offsets(shapes))):
        with whole_file(folder / name) as file:
            np.save(file, numbers, allow_pickle=False)
    info = CacheInfo(
        domain=domain.name,
        spec=domain.spec.fingerprint(),
        images=len(shapes),
        size=sum(part.size for part in parts),
        rounded=sum(part.rounded for part in parts),
        shapes_sha256=hashlib.sha256(shapes.tobytes()).hexdigest(),
        sha256=tuple(part.sha256 for part in parts),
        images_at_once=IMAGES_AT_ONCE,
    )
    write_whole(folder / INFO, json.dumps(asdict(info), indent=1).encode())


def _offsets(shapes: NDArray[np.uint8]) -> NDArray[np.int64]:  # (n, 3) -> (n + 1,)
    return np.concatenate([[0], np.cumsum(shapes.astype(np.int64).prod(axis=1))])


def verify_cache(folder: Path, domain: Domain | None = None, *, track: Track = silent) -> CacheInfo:
    """Check every byte against its checksum and, with the uncached domain at hand, some images against it."""
    info = read_info(folder)
    try:
        shapes = np.load(folder / SHAPES, allow_pickle=False)
        offsets = np.load(folder / OFFSETS, allow_pickle=False)
    except (OSError, ValueError, EOFError) as problem:
        raise DataError(f"{folder}: the index of the cache is damaged ({problem}): {REMEDY}") from problem
    if hashlib.sha256(shapes.tobytes()).hexdigest() != info.shapes_sha256:
        raise DataError(f"{folder / SHAPES}: the shapes do not have their checksum: {REMEDY}")
    if not np.array_equal(offsets, _offsets(shapes)):
        raise DataError(f"{folder / OFFSETS}: the offsets do not follow from the shapes: {REMEDY}")
    bounds = [*offsets[: info.images : info.images_at_once].tolist(), info.size]
    with open(folder / PIXELS, "rb") as file:
        checked = track(info.sha256, label=f"verify {info.domain}", total=len(info.sha256))
        for (first, last), want in zip(pairwise(bounds), checked, strict=False):
            if hashlib.sha256(file.read(last - first)).hexdigest() != want:
                raise DataError(
                    f"{folder / PIXELS}: bytes {first:,} to {last:,} do not have their checksum: {REMEDY}"
                )
    if domain is not None:
        _compare(domain, folder)
    return info


def _compare(domain: Domain, folder: Path) -> None:
    cached = open_cached(domain, folder).source
    items = _items(domain.spec)
    chosen = items[:: max(1, len(items) // SAMPLES)]
    for item, kept, image in zip(chosen, cached.read(chosen), domain.source.read(chosen), strict=True):
        if not np.array_equal(kept.transpose(2, 0, 1), stored_form(image)[0]):
            raise DataError(
                f"{folder}: image {item[1]} of class {item[0]} is not the one {domain.name} has now: {REMEDY}"
            )
