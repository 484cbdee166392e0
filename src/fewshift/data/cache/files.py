"""The files of a cache and what `cache.json` says of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from fewshift.errors import DataError

FORMAT = 1
IMAGES_AT_ONCE = 512  # images that share a checksum, and that a killed build loses at most
REMEDY = "remove the folder and run `fewshift data cache` again"
PIXELS = "pixels.bin"  # every image's bytes
SHAPES = "shapes.npy"  # (n, 3) uint8: height, width, channels
OFFSETS = "offsets.npy"  # (n + 1,) int64: where each image begins among the pixels
INFO = "cache.json"  # the description that makes these files a cache
JOURNAL = "building.jsonl"  # while building: a line for every `IMAGES_AT_ONCE` images that are on the disk


@dataclass(frozen=True)
class CacheInfo:
    """What a cache holds."""

    domain: str
    spec: str  # fingerprint of the spec it was made for
    images: int
    size: int  # bytes of pixels
    rounded: int  # images that were larger than 84 pixels and are kept resized, in whole grey levels
    shapes_sha256: str
    sha256: tuple[str, ...]  # of the pixels, every `images_at_once` images
    images_at_once: int
    format: int = FORMAT


def read_info(folder: Path) -> CacheInfo:
    """What the folder's cache holds, after a look at the sizes of its files."""
    if not (folder / INFO).is_file():
        state = "an unfinished" if (folder / JOURNAL).is_file() else "no"
        raise DataError(f"{folder}: there is {state} cache here: run `fewshift data cache` to make it")
    try:
        fields = json.loads((folder / INFO).read_bytes())
        info = CacheInfo(**{**fields, "sha256": tuple(fields["sha256"])})
    except (OSError, ValueError, TypeError, KeyError) as problem:
        raise DataError(
            f"{folder / INFO}: this is no description of a cache ({problem}): {REMEDY}"
        ) from problem
    if info.format != FORMAT:
        raise DataError(f"{folder}: the cache has format {info.format}, not {FORMAT}: {REMEDY}")
    for name in (PIXELS, SHAPES, OFFSETS):
        if not (folder / name).is_file():
            raise DataError(f"{folder / name}: this file of the cache is missing: {REMEDY}")
    size = (folder / PIXELS).stat().st_size
    if size != info.size:
        raise DataError(f"{folder / PIXELS}: {size:,} bytes instead of {info.size:,}: {REMEDY}")
    return info
