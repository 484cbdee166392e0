"""How fast records are indexed, with all checksums.

fewshift bench data --records RECORDS
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from fewshift.benchmarks.data import result
from fewshift.data import crc32c
from fewshift.data.example import encode_example
from fewshift.data.records_folder import domain_folders
from fewshift.data.scan import scan_files
from fewshift.data.scan_window import ClassFile
from fewshift.data.spec_json import read_spec
from fewshift.data.tfrecord import frame

THREADS = 2
REPEATS = 3


def run(records: Path, *, megabytes: int = 200) -> dict[str, Any]:
    """All numbers; each is the best of three, because other work on the machine only slows a run down."""
    numbers: dict[str, Any] = {}
    for size in (20_000, 1_000):
        with tempfile.TemporaryDirectory(prefix="fewshift-bench-") as folder:
            written = _write_files(Path(folder), size, megabytes * 10**6)
            numbers |= _index_speeds(written, f"{size}_byte_records")
    files = [
        ClassFile(folder / f"{class_id}.tfrecords", class_id)
        for folder in domain_folders(records)
        for class_id in range(read_spec(folder).classes)
    ]
    numbers |= _index_speeds(files, "folder")
    lines = [
        result(
            f"indexing with checksums, {size}, MB a second", numbers[f"index_mb_per_s_{key}"], at_least=300
        )
        for size, key in (
            ("records of 20 kB", "20000_byte_records"),
            ("records of 1 kB", "1000_byte_records"),
            ("this folder", "folder"),
        )
    ]
    return {"results": lines, **numbers}


def _write_files(folder: Path, record_bytes: int, total: int, files: int = 10) -> list[ClassFile]:
    """Records of random bytes around this size, which no compression or cache can shorten."""
    generator = np.random.default_rng(0)
    result = []
    for class_id in range(files):
        path = folder / f"{class_id}.tfrecords"
        with path.open("wb") as out:
            while out.tell() < total // files:
                sizes = generator.integers(record_bytes // 2, record_bytes * 3 // 2, 100)
                out.write(frame([encode_example(generator.bytes(int(n)), class_id) for n in sizes]))
        result.append(ClassFile(path, class_id))
    return result


def _index_speeds(files: Sequence[ClassFile], name: str) -> dict[str, float]:
    """Megabytes per second as installed, and by the tables that stand in where nothing is compiled."""
    with mock.patch.object(crc32c, "_compiled", return_value=None):
        by_tables = _index_speed(files)
    return {f"index_mb_per_s_{name}": _index_speed(files), f"index_mb_per_s_{name}_by_tables": by_tables}


def _index_speed(files: Sequence[ClassFile]) -> float:
    total = sum(file.path.stat().st_size for file in files)
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        for scanned in scan_files(files, threads=THREADS):
            assert not scanned.faults
        times.append(time.perf_counter() - start)
    return round(total / 1e6 / min(times), 1)
