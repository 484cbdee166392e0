"""A domain whose images come from its cache."""

from __future__ import annotations

import mmap
import threading
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewshift.data.cache.files import OFFSETS, PIXELS, SHAPES, CacheInfo, read_info
from fewshift.data.domain import Domain, Item, Pixels
from fewshift.data.pixels import PROTOCOL_84, PROTOCOL_84_ROUNDED, PixelRule, Planes, at_once
from fewshift.data.spec import Spec
from fewshift.errors import DataError

RELEASE_AFTER = 4 * 2**20  # bytes read from all maps before their pages are given back


def open_cached(domain: Domain, folder: Path) -> Domain:
    """The same domain, read from its cache. `verify_cache` checks every byte, this only their number."""
    info = read_info(folder)
    if info.spec != domain.spec.fingerprint():
        raise DataError(
            f"{folder}: this cache was made for another {info.domain} than the {domain.name} at hand: "
            f"remove it and run `fewshift data cache` again"
        )
    return replace(domain, source=CachedSource(folder, domain.spec))


def protocol_rule(domain: Domain) -> PixelRule:
    """The rule under which this domain's tasks are the same with and without its cache."""
    rounded = isinstance(domain.source, CachedSource) and domain.source.info.rounded > 0
    return PROTOCOL_84_ROUNDED if rounded else PROTOCOL_84


class CachedSource:
    """Images in a memory-mapped file. Can be given to other processes, which map the file themselves."""

    def __init__(self, folder: Path, spec: Spec) -> None:
        self.folder, self.spec = folder, spec
        self.info: CacheInfo = read_info(folder)
        self._counts = np.array(spec.images_per_class)
        self._first = np.concatenate([[0], np.cumsum(self._counts)])
        self._shapes = np.asarray(np.load(folder / SHAPES, mmap_mode="r", allow_pickle=False))
        self._offsets = np.asarray(np.load(folder / OFFSETS, mmap_mode="r", allow_pickle=False))
        with open(folder / PIXELS, "rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._pixels = np.frombuffer(self._map, np.uint8)
        _resident.add(self._map)

    def __reduce__(self) -> tuple[Any, ...]:
        return CachedSource, (self.folder, self.spec)

    def read(self, items: Sequence[Item]) -> list[Pixels]:
        """Views of the file, one an image; they stay valid as long as somebody holds them."""
        if not items:
            return []
        rows = self._rows(np.array(items))
        offsets: list[int] = self._offsets[rows].tolist()
        shapes: list[list[int]] = self._shapes[rows].tolist()
        pixels, images, total = self._pixels, [], 0
        for offset, (height, width, channels) in zip(offsets, shapes, strict=True):
            size = height * width * channels
            total += size
            planes = pixels[offset : offset + size].reshape(channels, height, width)
            images.append(planes.transpose(1, 2, 0))
        _resident.note(total)
        return images

    def read_planes(self, items: Sequence[Item]) -> Iterator[Planes]:
        """The same images, in batches of one shape, which takes few steps where all have one."""
        if not items:
            return
        rows = self._rows(np.array(items))
        shapes = self._shapes[rows].astype(np.int64)
        kinds = shapes @ (1 << 16, 1 << 8, 1)
        in_order = np.argsort(kinds, kind="stable")
        ends = np.append(1 + np.flatnonzero(np.diff(kinds[in_order])), len(rows)).tolist()
        for begin, end in zip([0, *ends], ends, strict=False):
            height, width, channels = shapes[in_order[begin]].tolist()
            step, size = at_once(channels), height * width * channels
            for start in range(begin, end, step):
                places = in_order[start : min(start + step, end)]
                levels = self._gather(rows[places], size).reshape(-1, channels, height, width)
                yield Planes(places.tolist(), levels)
                _resident.note(levels.nbytes)

    def _gather(self, rows: NDArray[np.int64], size: int) -> Pixels:  # (n,) -> (n, size)
        """Images that all have this size in bytes."""
        if len(self._pixels) == size * self.info.images:  # as all others have, too
            together: Pixels = self._pixels.reshape(-1, size).take(rows, axis=0)
            return together
        found = [self._pixels[offset : offset + size] for offset in self._offsets[rows].tolist()]
        return found[0] if len(found) == 1 else np.concatenate(found)

    def _rows(self, items: NDArray[np.int64]) -> NDArray[np.int64]:  # (n, 2) -> (n,)
        classes, images = items[:, 0], items[:, 1]
        known = (classes >= 0) & (classes < len(self._counts)) & (images >= 0)
        if not known.all() or (images >= self._counts[classes]).any():
            raise IndexError(f"{self.spec.name}: no such image among {items.tolist()}")
        return self._first[classes] + images


class _Resident:
    """Gives mapped pages back now and then.

    The kernel keeps the file in memory as long as there is room; without this, all that was ever read would
    count as this process's own. Views stay valid: their pages come back when touched.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._maps: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()
        self._read = 0

    def add(self, mapped: mmap.mmap) -> None:
        with self._lock:
            self._maps.add(mapped)

    def note(self, size: int) -> None:
        with self._lock:
            self._read += size
            if self._read < RELEASE_AFTER:
                return
            self._read = 0
            maps = list(self._maps)
        if hasattr(mmap, "MADV_DONTNEED"):
            for mapped in maps:
                mapped.madvise(mmap.MADV_DONTNEED)


_resident = _Resident()
