"""The index of a records folder: where every record of every class starts.

Built once and kept in one file beside the records or, where that folder cannot be written, in the user's
cache folder. A class file whose size or time of change is not what it was is scanned again.

The file is a row of little-endian 64-bit numbers: a signature, the CRC-32 of all that follows, the number of
classes, four numbers per class (size, time, 1, records), and each class's record starts and end.
"""

from __future__ import annotations

import operator
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fewshift.data.descriptors import Version
from fewshift.data.example_batch import Places
from fewshift.data.scan import scan_files
from fewshift.data.scan_window import ClassFile
from fewshift.data.user_cache import cache_of_folder
from fewshift.data.whole_files import whole_file
from fewshift.errors import DataError
from fewshift.progress import Track, silent

INDEX_FILE = "fewshift-index.bin"
_SIGNATURE = 0x31_58_44_49_46_53_46  # "FSFIDX1"
_HEAD, _ROW = 3, 4
REMEDY = "copy or convert this class again"


@dataclass(frozen=True)
class Entry:
    """One class file as it was when it was scanned."""

    version: Version  # by which a file that was changed since is known
    bounds: Places  # (records + 1,)


_UNKNOWN = Entry((-1, -1), np.zeros(1, np.int64))


@dataclass(frozen=True)
class RecordIndex:
    """Class id -> its entry. The numbers stay on the disk and are mapped into memory where they are kept."""

    entries: tuple[Entry, ...]
    file: Path | None  # where it is kept, if anywhere


def index_folder(folder: Path, classes: int, track: Track = silent) -> RecordIndex:
    """The index of 0.tfrecords, 1.tfrecords, ..: scans what is new or changed, and keeps the result."""
    places = (folder / INDEX_FILE, cache_of_folder("index", folder, ".bin"))
    kept = [index for place in places if (index := load_index(place, classes))]
    files = [class_file(folder, class_id) for class_id in range(classes)]
    entries = [_current(file, kept) for file in files]
    stale = [file for file in files if entries[file.class_id] is _UNKNOWN]
    if not stale:
        whole = (index for index in kept if all(map(operator.is_, index.entries, entries)))
        return next(whole, RecordIndex(tuple(entries), None))
    scanned = 0
    try:
        for scan in scan_files(stale, track=track, label=f"indexing {folder.name}"):
            if scan.faults:
                raise DataError(f"{scan.file.path}: {scan.describe(scan.faults[0])}: {REMEDY}")
            entries[scan.file.class_id] = Entry((scan.size, scan.modified), scan.bounds)
            scanned += 1
    finally:  # what was read so far need not be read again, whatever happened
        place = _save_somewhere(places, entries) if scanned else None
    return (load_index(place, classes) if place else None) or RecordIndex(tuple(entries), None)


def _current(file: ClassFile, kept: Sequence[RecordIndex]) -> Entry:
    """What is known of the file as it is now."""
    try:
        status = file.path.stat()
    except OSError:
        return _UNKNOWN  # the scan will say what is wrong
    version = (status.st_size, status.st_mtime_ns)
    known = (index.entries[file.class_id] for index in kept)
    return next((entry for entry in known if entry.version == version), _UNKNOWN)


def class_file(folder: Path, class_id: int) -> ClassFile:
    """The file of this class."""
    return ClassFile(folder / f"{class_id}.tfrecords", class_id)


def load_index(file: Path, classes: int) -> RecordIndex | None:
    """The index kept in this file; None if there is none for so many classes, or it is damaged."""
    try:
        if file.stat().st_size < 8 * (_HEAD + _ROW * classes) or file.stat().st_size % 8:
            return None
        words = np.asarray(np.memmap(file, "<i8", "r"))
        if words[0] != _SIGNATURE or words[1] != _checksum_of_file(file) or words[2] != classes:
            return None
    except (OSError, ValueError):
        return None
    table, bounds = np.split(words[_HEAD:], [_ROW * classes])
    entries, at = [], 0
    for size, modified, _, records in table.reshape(-1, _ROW).tolist():
        entries.append(Entry((size, modified), bounds[at : at + records + 1]))
        at += records + 1
    return RecordIndex(tuple(entries), file) if at == len(bounds) else None


def save_index(file: Path, entries: Sequence[Entry]) -> None:
    """Keep the index in this file."""
    rows = [(*entry.version, 1, len(entry.bounds) - 1) for entry in entries]
    parts = [np.array([len(entries)], "<i8"), np.array(rows, "<i8").reshape(-1)]
    parts += [entry.bounds.astype("<i8", copy=False) for entry in entries]
    checksum = 0
    for part in parts:
        checksum = zlib.crc32(part.data, checksum)
    with whole_file(file) as out:
        for part in [np.array([_SIGNATURE, checksum], "<i8"), *parts]:
            out.write(part.data)


def _checksum_of_file(file: Path) -> int:
    """Of all numbers after the checksum, read in pieces so that a large index does not fill the memory."""
    checksum = 0
    with file.open("rb") as stream:
        stream.seek(16)
        while piece := stream.read(1 << 20):
            checksum = zlib.crc32(piece, checksum)
    return checksum


def _save_somewhere(places: Sequence[Path], entries: Sequence[Entry]) -> Path | None:
    beside, _ = places
    for place in places if _may_write(beside.parent) else places[1:]:
        try:
            save_index(place, entries)
        except OSError:
            continue
        return place
    return None


def _may_write(folder: Path) -> bool:
    # The mode is asked as well, because the administrator may write anywhere but should not where nobody may.
    return os.access(folder, os.W_OK) and bool(folder.stat().st_mode & 0o222)
