"""Images of a records folder, by class and number, without reading anything else."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fewshift.data.descriptors import Descriptors, read_at
from fewshift.data.domain import Item, Pixels
from fewshift.data.example import decode_example
from fewshift.data.example_batch import Examples
from fewshift.data.index_cache import REMEDY, Entry, RecordIndex, class_file, index_folder
from fewshift.data.pixels import decode
from fewshift.data.spec import Spec
from fewshift.data.spec_json import SPEC_FILE
from fewshift.data.tfrecord import Fault, Frames, bad_contents, bad_labels, bad_lengths
from fewshift.errors import DataError
from fewshift.progress import Track, silent

_BATCH_BYTES = 8 * 2**20  # read at once, whatever the number of items


class RecordSource:
    """An `ImageSource` over one `<class id>.tfrecords` file a class.

    Reads are positioned, so threads share the files; at most `descriptors` of them are open at a time. It can
    be pickled, and goes on after a fork. The label inside every record is compared with the class of its file
    at each read; `verify` also checks the checksum again, which `check` did once while indexing.
    """

    def __init__(
        self, folder: Path, spec: Spec, *, check: bool = True, verify: bool = False, descriptors: int = 64
    ) -> None:
        self.folder = folder
        self.spec = spec
        self.check = check
        self.verify = verify
        self._files = Descriptors(descriptors)
        self._index: RecordIndex | None = None
        self._lock = threading.Lock()

    def prepare(self, track: Track = silent) -> None:
        """Load or build the index now, where somebody can watch, instead of at the first read."""
        with self._lock:
            if self._index is None:
                index = index_folder(self.folder, self.spec.classes, check=self.check, track=track)
                for class_id, entry in enumerate(index.entries):
                    self._check_count(class_id, entry)
                self._index = index

    def read(self, items: Sequence[Item]) -> list[Pixels]:
        """The images at these places, in this order, at their native size."""
        return [
            decode(encoded, self._where(*item), upright=False)  # as Meta-Dataset's own reader does
            for item, encoded in zip(items, self.read_encoded(items), strict=True)
        ]

    def read_encoded(self, items: Sequence[Item]) -> list[bytes]:
        """The same images as they are stored: JPEG, PNG, WebP, .."""
        self.prepare()
        images: dict[int, bytes] = {}
        for places, frames in self._frames(items):
            images |= zip(places, self._images(frames, [items[place] for place in places]), strict=True)
        return [images[place] for place in range(len(items))]

    def close(self) -> None:
        """Close the files; they are opened again when needed."""
        self._files.close()

    def _frames(self, items: Sequence[Item]) -> Iterator[tuple[list[int], Frames]]:
        """(places in `items`, their frames), file after file, a few megabytes at a time."""
        places: list[int] = []
        pieces: list[bytes] = []
        filled = 0
        for place in sorted(range(len(items)), key=lambda place: items[place]):
            start, stop = self._bounds(items[place])
            with self._files.use(class_file(self.folder, items[place][0]).path) as handle:
                piece = read_at(handle, stop - start, start)
            if len(piece) != stop - start:
                raise DataError(f"{self._where(*items[place])}: the file ends before this record: {REMEDY}")
            places.append(place)
            pieces.append(piece)
            filled += len(piece)
            if filled >= _BATCH_BYTES:
                yield places, _as_frames(pieces)
                places, pieces, filled = [], [], 0
        if places:
            yield places, _as_frames(pieces)

    def _images(self, frames: Frames, items: Sequence[Item]) -> list[bytes]:
        examples = frames.examples()
        for fault in self._faults(frames, examples, items):
            raise DataError(f"{self._where(*items[fault.record])} {fault.text}: {REMEDY}")
        spans = zip(examples.image_starts.tolist(), examples.image_stops.tolist(), strict=True)
        return [
            frames.data[start:stop].tobytes() if label >= 0 else decode_example(frames.content(i)).image
            for i, ((start, stop), label) in enumerate(zip(spans, examples.labels, strict=True))
        ]

    def _faults(self, frames: Frames, examples: Examples, items: Sequence[Item]) -> Iterator[Fault]:
        for place in np.flatnonzero(bad_lengths(frames)):
            yield Fault("length", int(place), "is not where it was when the file was indexed")
        if self.verify:
            yield from bad_contents(frames)
        yield from bad_labels(frames, examples, np.array([class_id for class_id, _ in items], np.int64))

    def _bounds(self, item: Item) -> tuple[int, int]:
        class_id, place = item
        if not (0 <= class_id < self.spec.classes and 0 <= place < self.spec.images_per_class[class_id]):
            raise DataError(f"{self.spec.name}: there is no image {place} of class {class_id} in its spec")
        assert self._index is not None
        start, stop = self._index.entries[class_id].bounds[place : place + 2].tolist()
        return start, stop

    def _check_count(self, class_id: int, entry: Entry) -> None:
        found, expected = len(entry.bounds) - 1, self.spec.images_per_class[class_id]
        if found != expected:
            raise DataError(
                f"{class_file(self.folder, class_id).path}: it holds {found} records but {SPEC_FILE} says "
                f"{expected}: run `fewshift data inspect {self.folder}` and convert this class again"
            )

    def _where(self, class_id: int, place: int) -> str:
        return f"{class_file(self.folder, class_id).path}: record {place}"

    def __getstate__(self) -> dict[str, Any]:
        keep = self._index if self._index and self._index.file is None else None  # else it is loaded again
        state = {name: getattr(self, name) for name in ("folder", "spec", "check", "verify")}
        return {**state, "descriptors": self._files.limit, "index": keep}

    def __setstate__(self, state: dict[str, Any]) -> None:
        index = state.pop("index")
        self.__init__(**state)  # type: ignore[misc]
        self._index = index


def _as_frames(pieces: Sequence[bytes]) -> Frames:
    stops = np.cumsum([len(piece) for piece in pieces], dtype=np.int64)
    starts = np.concatenate([np.zeros(1, np.int64), stops[:-1]])
    return Frames(np.frombuffer(b"".join(pieces), np.uint8), starts, stops)
