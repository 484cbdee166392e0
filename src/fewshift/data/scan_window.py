"""Check many records of several files at once.

Files are read in windows of a few megabytes. Small files share a window, because checksums are quick only
when many records are checked at once; large files take several. Memory does not depend on what a file claims.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from fewshift.data.example_batch import Flags, Places
from fewshift.data.tfrecord import BAD_LENGTH, Fault, Frames, bad_contents, bad_labels, bad_lengths

WINDOW = 4 * 2**20
MAX_FAULTS = 100  # per file; more would say nothing new


@dataclass(frozen=True, slots=True)
class ClassFile:
    """The records of one class."""

    path: Path
    class_id: int


@dataclass(frozen=True)
class Scan:
    """What a file holds. `bounds` are the starts of its whole records and the end of the last one."""

    file: ClassFile
    size: int
    modified: int  # nanoseconds, as the file system has it
    bounds: Places  # (records + 1,)
    faults: tuple[Fault, ...]

    @property
    def records(self) -> int:
        """How many whole records there are."""
        return len(self.bounds) - 1

    def offset(self, fault: Fault) -> int:
        """The byte of the file at which the faulty record starts."""
        return int(self.bounds[fault.record])

    def describe(self, fault: Fault) -> str:
        """The record's place and what is wrong with it."""
        return f"record {fault.record} at byte {self.offset(fault)} {fault.text}"


@dataclass
class Unfinished:
    """A file on its way to a `Scan`."""

    file: ClassFile
    size: int
    modified: int
    bounds: list[Places] = field(default_factory=lambda: [np.zeros(1, np.int64)])
    records: int = 0
    faults: list[Fault] = field(default_factory=list)
    broken: bool = False  # what lies behind the last record cannot be read

    @staticmethod
    def of(file: ClassFile, status: os.stat_result) -> Unfinished:
        """A file of which nothing is known yet."""
        return Unfinished(file, status.st_size, status.st_mtime_ns)

    def extend(self, stops: Places) -> None:
        """Here the next records stop, in bytes of the file."""
        self.bounds.append(stops)
        self.records += len(stops)

    def blame(self, fault: Fault, record: int) -> None:
        """This record, counted from the start of the file, has this fault."""
        self.broken |= fault.kind in ("length", "truncated")
        if len(self.faults) < MAX_FAULTS:
            self.faults.append(replace(fault, record=record))

    def finish(self) -> Scan:
        """All that was found."""
        faults = sorted(self.faults, key=lambda fault: fault.record)
        return Scan(self.file, self.size, self.modified, np.concatenate(self.bounds), tuple(faults))


@dataclass(frozen=True, slots=True)
class Piece:
    """Frames of one file that lie side by side, or the reason why none can follow."""

    owner: Unfinished
    offset: int  # of `data` in the file
    data: bytes = b""  # from the start of the first frame on, perhaps more than the frames
    stops: Sequence[int] = ()  # of the frames, in `data`
    end: Fault | None = None


def check_window(pieces: Sequence[Piece]) -> None:
    """Check the frames of these pieces together and tell their files what was found.

    Of a file there may be one piece with frames and, behind it, one that says why no more can follow.
    """
    frames, piece_of = _side_by_side(pieces)
    trusted = _trusted(bad_lengths(frames), piece_of)
    frames = Frames(frames.data, frames.starts[trusted], frames.stops[trusted])
    piece_of = piece_of[trusted]
    labels = np.array([piece.owner.file.class_id for piece in pieces], np.int64)[piece_of]

    damaged = bad_contents(frames)
    known = {fault.record for fault in damaged}
    wrong = [fault for fault in bad_labels(frames, frames.examples(), labels) if fault.record not in known]

    first = np.searchsorted(piece_of, np.arange(len(pieces) + 1))  # piece -> its first frame
    records_before = [0] * len(pieces)
    for place, piece in enumerate(pieces):
        records_before[place] = piece.owner.records
        count = int(first[place + 1] - first[place])
        piece.owner.extend(piece.offset + np.array(piece.stops[:count], np.int64))
        if count < len(piece.stops):
            piece.owner.blame(Fault("length", 0, BAD_LENGTH), piece.owner.records)
        elif piece.end and not piece.owner.broken:
            piece.owner.blame(piece.end, piece.owner.records)
    for fault in [*damaged, *wrong]:
        place = int(piece_of[fault.record])
        record = records_before[place] + fault.record - int(first[place])
        pieces[place].owner.blame(fault, record)


def _side_by_side(pieces: Sequence[Piece]) -> tuple[Frames, Places]:
    """All frames in one buffer, and the piece that each of them comes from."""
    data = np.frombuffer(b"".join([piece.data for piece in pieces]), np.uint8)
    begins = np.cumsum([0, *(len(piece.data) for piece in pieces)])[:-1]
    piece_of = np.repeat(np.arange(len(pieces)), [len(piece.stops) for piece in pieces])
    stops = np.array([stop for piece in pieces for stop in piece.stops], np.int64)
    first = np.diff(piece_of, prepend=-1) > 0
    starts = np.where(first, 0, np.roll(stops, 1))  # a frame starts where the one before it stops
    return Frames(data, starts + begins[piece_of], stops + begins[piece_of]), piece_of


def _trusted(bad: Flags, piece_of: Places) -> Flags:  # (n,)
    """All frames but those of a piece from its first bad length on: they were found by following it."""
    trusted = ~bad
    for place in np.unique(piece_of[bad]):
        begin, end = np.searchsorted(piece_of, [place, place + 1])
        trusted[begin + np.argmax(bad[begin:end]) : end] = False
    return trusted
