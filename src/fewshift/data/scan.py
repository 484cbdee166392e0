"""Go once through record files: where each record starts, and everything that is wrong with them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import numpy as np

from fewshift.data.descriptors import opened, read_at
from fewshift.data.scan_window import WINDOW, ClassFile, Piece, Scan, Unfinished, check_window
from fewshift.data.tfrecord import (
    BAD_LENGTH,
    HEADER,
    MAX_RECORD,
    OVERHEAD,
    Fault,
    bad_end,
    bad_heads,
    content_length,
    hop,
)
from fewshift.progress import Track, silent

_BATCH = 4096  # heads checked at once when only lengths are read


def scan_files(
    files: Sequence[ClassFile],
    *,
    check: bool = True,
    threads: int | None = None,
    track: Track = silent,
    label: str = "checking records",
) -> Iterator[Scan]:
    """Scan these files, several at a time, in no particular order.

    `check` reads everything and checks all checksums and labels. Without it only the lengths of the records
    are read and checked, which takes a moment; damaged content is noticed when it is used.
    """
    scan = _scan_group if check else _follow_lengths
    with ThreadPoolExecutor(threads or min(8, os.cpu_count() or 1)) as pool:
        waiting = [pool.submit(scan, group) for group in _groups(files)]
        finished = (scan for future in as_completed(waiting) for scan in future.result())
        try:
            yield from track(finished, label=label, total=len(files))
        finally:
            for future in waiting:
                future.cancel()


def _groups(files: Iterable[ClassFile]) -> Iterator[list[ClassFile]]:
    """Runs of files that fill a window together."""
    group: list[ClassFile] = []
    filled = 0
    for file in files:
        group.append(file)
        filled += _size(file.path)
        if filled >= WINDOW:
            yield group
            group, filled = [], 0
    if group:
        yield group


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0  # opening it will give the reason


def _scan_group(files: Sequence[ClassFile]) -> list[Scan]:
    started: list[Unfinished] = []
    window: list[Piece] = []
    filled = 0
    for file in files:
        with opened(file.path) as handle:
            owner = Unfinished.of(file, os.fstat(handle))
            started.append(owner)
            for piece in _pieces(handle, owner):
                window.append(piece)
                filled += len(piece.data)
                if filled >= WINDOW or owner.size > WINDOW:
                    check_window(window)
                    window, filled = [], 0
                if owner.broken:
                    break
    check_window(window)
    return [owner.finish() for owner in started]


def _pieces(handle: int, owner: Unfinished) -> Iterator[Piece]:
    """The file in windows that end with a whole record."""
    at = 0
    while at < owner.size:
        wanted = min(WINDOW, owner.size - at)
        data = read_at(handle, wanted, at)
        stops = hop(data)
        if not stops:
            left = owner.size - at if len(data) == wanted else len(data)  # less, if the file shrank meanwhile
            if fault := bad_end(data, left):
                yield Piece(owner, at, end=fault)
                return
            data = read_at(handle, content_length(data) + OVERHEAD, at)
            stops = [len(data)]
        yield Piece(owner, at, data, stops)
        at += stops[-1]


def _follow_lengths(files: Sequence[ClassFile]) -> list[Scan]:
    scans = []
    for file in files:
        with opened(file.path) as handle:
            owner = Unfinished.of(file, os.fstat(handle))
            at = 0
            while at < owner.size and not owner.broken:
                at = _follow_some(handle, owner, at)
            scans.append(owner.finish())
    return scans


def _follow_some(handle: int, owner: Unfinished, at: int) -> int:
    """Tell the file of its next records from byte `at` on, or why there are none; the byte after them."""
    heads: list[bytes] = []
    stops: list[int] = []
    while len(stops) < _BATCH and at + OVERHEAD <= owner.size:
        head = read_at(handle, HEADER, at)
        if len(head) < HEADER or (length := content_length(head)) > MAX_RECORD:
            break
        if at + length + OVERHEAD > owner.size:
            break
        at += length + OVERHEAD
        heads.append(head)
        stops.append(at)
    if not stops:
        fault = bad_end(read_at(handle, HEADER, at), owner.size - at)
        owner.blame(fault or Fault("truncated", 0, "was cut off while it was read"), owner.records)
        return at
    wrong = bad_heads(np.frombuffer(b"".join(heads), np.uint8).reshape(-1, HEADER))
    good = int(np.argmax(wrong)) if wrong.any() else len(stops)
    owner.extend(np.array(stops[:good], np.int64))
    if good < len(stops):
        owner.blame(Fault("length", 0, BAD_LENGTH), owner.records)
    return at
