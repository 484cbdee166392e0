"""Making a cache and checking it."""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

import numpy as np

from fewshift.data.cache.files import IMAGES_AT_ONCE, REMEDY, CacheInfo, Locations, read_info, write_info
from fewshift.data.cache.journal import Part, append, finished_parts, open_journal
from fewshift.data.cache.source import CachedSource, open_cached
from fewshift.data.domain import Domain, Item, Pixels
from fewshift.data.pixels import PROTOCOL_84
from fewshift.data.resize import resize_aligned
from fewshift.data.whole_files import whole_file
from fewshift.errors import DataError
from fewshift.progress import Track, silent

SIDE = PROTOCOL_84.size
READ_AT_ONCE = 64


def build_cache(domain: Domain, folder: Path, track: Track = silent, workers: int = 2) -> None:
    """Make the domain's cache in this folder or go on with an unfinished one; leave a finished one alone."""
    spec = domain.spec
    items = [(c, i) for c, count in enumerate(spec.images_per_class) for i in range(count)]
    if not items:
        raise DataError(f"{spec.name}: there are no images to keep in a cache")
    files = Locations(folder)
    head: dict[str, str | int] = {"spec": spec.fingerprint(), "images_at_once": IMAGES_AT_ONCE}
    if files.info.is_file():
        if read_info(folder).spec != spec.fingerprint():
            raise DataError(f"{folder}: this is the cache of other data than {spec.name}: {REMEDY}")
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with open_journal(files) as journal:
            parts = finished_parts(files, journal, head, spec.name)
            _add_parts(domain, items, files, journal, parts, track, workers)
            _finish(domain, files, parts)
        files.journal.unlink(missing_ok=True)
    except OSError as problem:
        raise DataError(
            f"{folder}: the cache of {spec.name} could not be written ({problem.strerror or problem}): "
            "mend that and run the same command again, it goes on where it stopped"
        ) from problem


def _add_parts(
    domain: Domain,
    items: list[Item],
    files: Locations,
    journal: IO[bytes],
    parts: list[Part],
    track: Track,
    workers: int,
) -> None:
    starts = range(len(parts) * IMAGES_AT_ONCE, len(items), IMAGES_AT_ONCE)
    with open(files.pixels, "a+b") as pixels, ThreadPoolExecutor(workers) as pool:
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
            append(journal, parts[-1].line())


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


def _finish(domain: Domain, files: Locations, parts: list[Part]) -> None:
    shapes = np.concatenate([part.shapes for part in parts])
    ends = np.cumsum(shapes.astype(np.int64).prod(axis=1))
    with whole_file(files.shapes) as file:
        np.save(file, shapes, allow_pickle=False)
    with whole_file(files.offsets) as file:
        np.save(file, np.concatenate([[0], ends]), allow_pickle=False)
    info = CacheInfo(
        domain=domain.name,
        spec=domain.spec.fingerprint(),
        images=len(shapes),
        size=int(ends[-1]),
        rounded=sum(part.rounded for part in parts),
        shapes_sha256=hashlib.sha256(shapes.tobytes()).hexdigest(),
        sha256=tuple(part.sha256 for part in parts),
        images_at_once=IMAGES_AT_ONCE,
    )
    write_info(files.folder, info)


def verify_cache(
    folder: Path, domain: Domain | None = None, *, samples: int = 256, track: Track = silent
) -> CacheInfo:
    """Check every byte against its checksum and, with the uncached domain at hand, some images against it."""
    info, files = read_info(folder), Locations(folder)
    try:
        shapes = np.load(files.shapes, allow_pickle=False)
        offsets = np.load(files.offsets, allow_pickle=False)
    except (OSError, ValueError, EOFError) as problem:
        raise DataError(f"{folder}: the index of the cache is damaged ({problem}): {REMEDY}") from problem
    if hashlib.sha256(shapes.tobytes()).hexdigest() != info.shapes_sha256:
        raise DataError(f"{files.shapes}: the shapes do not have their checksum: {REMEDY}")
    if not np.array_equal(offsets, np.concatenate([[0], np.cumsum(shapes.astype(np.int64).prod(axis=1))])):
        raise DataError(f"{files.offsets}: the offsets do not follow from the shapes: {REMEDY}")
    with open(files.pixels, "rb") as file:
        for number, want in enumerate(
            track(info.sha256, label=f"verify {info.domain}", total=len(info.sha256))
        ):
            first = number * info.images_at_once
            last = min(first + info.images_at_once, info.images)
            content = file.read(int(offsets[last] - offsets[first]))
            if hashlib.sha256(content).hexdigest() != want:
                raise DataError(
                    f"{files.pixels}: bytes {offsets[first]:,} to {offsets[last]:,} do not have their "
                    f"checksum: {REMEDY}"
                )
    if domain is not None:
        _compare(domain, folder, samples)
    return info


def _compare(domain: Domain, folder: Path, samples: int) -> None:
    cached = open_cached(domain, folder).source
    assert isinstance(cached, CachedSource)
    items = [(c, i) for c, count in enumerate(domain.spec.images_per_class) for i in range(count)]
    chosen = items[:: max(1, len(items) // samples)]
    for item, kept, image in zip(chosen, cached.read(chosen), domain.source.read(chosen), strict=True):
        if not np.array_equal(kept.transpose(2, 0, 1), stored_form(image)[0]):
            raise DataError(
                f"{folder}: image {item[1]} of class {item[0]} is not the one {domain.name} has now: {REMEDY}"
            )
