"""Images of a records folder, by class and number, without reading anything else."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from fewshift.data.decoding import decode
from fewshift.data.descriptors import kept_open, read_at
from fewshift.data.domain import Item, Pixels
from fewshift.data.example import decode_example
from fewshift.data.index_cache import REMEDY, Entry, RecordIndex, class_file, index_folder
from fewshift.data.spec import Spec
from fewshift.data.spec_json import SPEC_FILE
from fewshift.data.tfrecord import Fault, Frames, bad_labels, bad_lengths
from fewshift.errors import DataError
from fewshift.progress import Track, silent

_BATCH_BYTES = 8 * 2**20  # read at once, whatever the number of items
_ONE_GO = 2**20  # bytes of a file that are read in one go, if enough of them are wanted


class RecordSource:
    """An `ImageSource` over one `<class id>.tfrecords` file per class.

    Reads are positioned, so threads share the files. It can be pickled, and goes on after a fork. Checksums
    are checked once, while indexing; the label inside every record is compared with its file's class at each
    read.
    """

    def __init__(self, folder: Path, spec: Spec) -> None:
        self.folder = folder
        self.spec = spec
        self._index: RecordIndex | None = None
        self._lock = threading.Lock()

    def prepare(self, track: Track = silent) -> None:
        """Load or build the index now, where somebody can watch, instead of at the first read."""
        if self._index is not None:
            return  # without the lock, which a fork may have copied while it was held
        with self._lock:
            if self._index is None:
                index = index_folder(self.folder, self.spec.classes, track)
                for class_id, entry in enumerate(index.entries):
                    self._check_count(class_id, entry)
                self._index = index

    def class_files(self) -> list[Path]:
        """The files that are there, by name."""
        return sorted(self.folder.glob("*.tfrecords"))

    def read(self, items: Sequence[Item]) -> list[Pixels]:
        """The images at these places, in this order, at their native size."""
        return [
            decode(encoded, _Place(self, item), upright=False, grey=True)  # as Meta-Dataset's own reader does
            for item, encoded in zip(items, self.read_encoded(items), strict=True)
        ]

    def read_encoded(self, items: Sequence[Item]) -> list[bytes]:
        """The same images as they are stored: JPEG, PNG, WebP, .."""
        self.prepare()
        images: dict[int, bytes] = {}
        for places, frames in self._frames(items):
            images |= zip(places, self._images(frames, [items[place] for place in places]), strict=True)
        return [images[place] for place in range(len(items))]

    def _frames(self, items: Sequence[Item]) -> Iterator[tuple[list[int], Frames]]:
        """(places in `items`, their frames), file after file, a few megabytes at a time."""
        places: list[int] = []
        pieces: list[bytes] = []
        filled = 0
        in_order = sorted(range(len(items)), key=lambda place: items[place])
        for class_id, group in groupby(in_order, key=lambda place: items[place][0]):
            entry = self._entry(class_id)
            wanted = list(group)
            bounds = [self._bounds(entry, items[place]) for place in wanted]
            with kept_open(class_file(self.folder, class_id).path, entry.version) as handle:
                for place, piece in zip(wanted, _read_spans(handle, bounds), strict=True):
                    pieces.append(piece)
                    places.append(place)
                    filled += len(piece)
                    if filled >= _BATCH_BYTES:
                        yield places, _as_frames(pieces)
                        places, pieces, filled = [], [], 0
        if places:
            yield places, _as_frames(pieces)

    def _images(self, frames: Frames, items: Sequence[Item]) -> list[bytes]:
        examples = frames.examples()
        moved = [
            Fault("length", int(place), "is not where it was when the file was indexed")
            for place in np.flatnonzero(bad_lengths(frames))
        ]
        labels = np.array([class_id for class_id, _ in items], np.int64)
        for fault in moved or bad_labels(frames, examples, labels):
            raise DataError(f"{self._where(*items[fault.record])} {fault.text}: {REMEDY}")
        spans = zip(examples.image_starts.tolist(), examples.image_stops.tolist(), strict=True)
        return [
            frames.data[start:stop].tobytes() if label >= 0 else decode_example(frames.content(i)).image
            for i, ((start, stop), label) in enumerate(zip(spans, examples.labels, strict=True))
        ]

    def _entry(self, class_id: int) -> Entry:
        if not 0 <= class_id < self.spec.classes:
            raise DataError(
                f"{self.spec.name}: it has no class {class_id}, only 0 to {self.spec.classes - 1}"
            )
        assert self._index is not None, "prepare() comes first"
        return self._index.entries[class_id]

    def _bounds(self, entry: Entry, item: Item) -> tuple[int, int]:
        class_id, place = item
        if not 0 <= place < len(entry.bounds) - 1:
            last = len(entry.bounds) - 2
            raise DataError(f"{self.spec.name}: class {class_id} has no image {place}, only 0 to {last}")
        start, stop = entry.bounds[place : place + 2].tolist()
        return start, stop

    def _check_count(self, class_id: int, entry: Entry) -> None:
        found, expected = len(entry.bounds) - 1, self.spec.images_per_class[class_id]
        if found != expected:
            raise DataError(
                f"{class_file(self.folder, class_id).path}: it holds {found} records but {SPEC_FILE} says "
                f"{expected}: run `fewshift data inspect {self.folder}` and convert this class again"
            )

    def _where(self, class_id: int, place: int) -> str:
        start, _ = self._bounds(self._entry(class_id), (class_id, place))
        return f"{class_file(self.folder, class_id).path}: record {place} at byte {start}"

    def __getstate__(self) -> dict[str, Any]:
        keep = self._index if self._index and self._index.file is None else None  # else it is loaded again
        return {"folder": self.folder, "spec": self.spec, "_index": keep}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())


def _read_spans(handle: int, bounds: Sequence[tuple[int, int]]) -> Iterator[bytes]:
    """The bytes between each pair of bounds, which increase; in one go where little else lies between."""
    first, last = bounds[0][0], bounds[-1][1]
    if last - first > min(_ONE_GO, 4 * sum(stop - start for start, stop in bounds)):
        yield from (read_at(handle, stop - start, start) for start, stop in bounds)
        return
    data = read_at(handle, last - first, first)
    yield from (data[start - first : stop - first] for start, stop in bounds)


@dataclass(frozen=True, slots=True)
class _Place:
    """The name of an image in errors, which hardly ever is needed."""

    source: RecordSource
    item: Item

    def __str__(self) -> str:
        return self.source._where(*self.item)


def _as_frames(pieces: Sequence[bytes]) -> Frames:
    stops = np.cumsum([len(piece) for piece in pieces], dtype=np.int64)
    starts = np.concatenate([np.zeros(1, np.int64), stops[:-1]])
    return Frames(np.frombuffer(b"".join(pieces), np.uint8), starts, stops)
