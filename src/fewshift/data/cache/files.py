"""The files of a cache and what `cache.json` says of them."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from fewshift.data.whole_files import write_whole
from fewshift.errors import DataError

FORMAT = 1
IMAGES_AT_ONCE = 512  # images that share a checksum, and that a killed build loses at most
REMEDY = "remove the folder and run `fewshift data cache` again"


@dataclass(frozen=True)
class Locations:
    """Where a cache keeps what."""

    folder: Path

    @property
    def pixels(self) -> Path:
        """Every image's bytes."""
        return self.folder / "pixels.bin"

    @property
    def shapes(self) -> Path:
        """(n, 3) uint8: height, width, channels."""
        return self.folder / "shapes.npy"

    @property
    def offsets(self) -> Path:
        """(n + 1,) int64: where an image begins in `pixels`."""
        return self.folder / "offsets.npy"

    @property
    def info(self) -> Path:
        """The description that makes these files a cache."""
        return self.folder / "cache.json"

    @property
    def journal(self) -> Path:
        """While building: one line for every `IMAGES_AT_ONCE` images that are on the disk."""
        return self.folder / "building.jsonl"


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


def write_info(folder: Path, info: CacheInfo) -> None:
    """Make the folder a finished cache."""
    write_whole(Locations(folder).info, json.dumps(asdict(info), indent=1).encode())


def read_info(folder: Path) -> CacheInfo:
    """What the folder's cache holds, after a look at the sizes of its files."""
    files = Locations(folder)
    if not files.info.is_file():
        state = "an unfinished" if files.journal.is_file() else "no"
        raise DataError(f"{folder}: there is {state} cache here: run `fewshift data cache` to make it")
    try:
        fields = json.loads(files.info.read_bytes())
        info = CacheInfo(**{**fields, "sha256": tuple(fields["sha256"])})
    except (OSError, ValueError, TypeError, KeyError) as problem:
        raise DataError(f"{files.info}: this is no description of a cache ({problem}): {REMEDY}") from problem
    if info.format != FORMAT:
        raise DataError(f"{folder}: the cache has format {info.format}, not {FORMAT}: {REMEDY}")
    for path in (files.pixels, files.shapes, files.offsets):
        if not path.is_file():
            raise DataError(f"{path}: this file of the cache is missing: {REMEDY}")
    if files.pixels.stat().st_size != info.size:
        raise DataError(
            f"{files.pixels}: {files.pixels.stat().st_size:,} bytes instead of {info.size:,}: {REMEDY}"
        )
    return info
