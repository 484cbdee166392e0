"""Decode every image of record files to find those that cannot be."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from fewshift.data.decoding import decode
from fewshift.data.descriptors import opened, read_at
from fewshift.data.example import Malformed, decode_example
from fewshift.data.scan_window import MAX_FAULTS, Scan
from fewshift.data.tfrecord import FOOTER, HEADER
from fewshift.errors import DataError
from fewshift.progress import Track, silent


def undecodable(scans: Sequence[Scan], track: Track = silent) -> Iterator[tuple[Scan, int, str]]:
    """(scan, record, what is wrong with its image), for all records that are otherwise sound."""
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        found = pool.map(_in_file, scans)
        for scan, bad in zip(scans, track(found, label="decoding images", total=len(scans)), strict=True):
            yield from ((scan, record, text) for record, text in bad)


def _in_file(scan: Scan) -> list[tuple[int, str]]:
    faulty = {fault.record for fault in scan.faults}
    bad: list[tuple[int, str]] = []
    with opened(scan.file.path) as handle:
        for record in range(scan.records):
            if record in faulty or len(bad) >= MAX_FAULTS:
                continue
            start, stop = scan.bounds[record : record + 2].tolist()
            try:
                image = decode_example(read_at(handle, stop - start, start)[HEADER:-FOOTER]).image
                decode(image, f"record {record} at byte {start}", upright=False)
            except (DataError, Malformed) as problem:
                bad.append((record, str(problem)))
    return bad
