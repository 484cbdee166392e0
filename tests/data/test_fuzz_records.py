"""Thousands of damaged files: refused by a sentence or read right; no crash, no hang, no memory filled."""

import random
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from damage import forge_length, mutate, mutate_plainly, outcome
from small_records import images_of, png, small_domain

from fewshift.data.example import Malformed, decode_example, encode_example
from fewshift.data.index_cache import INDEX_FILE, load_index
from fewshift.data.records import RecordSource
from fewshift.data.scan import scan_files
from fewshift.data.scan_window import ClassFile, Scan
from fewshift.data.tfrecord import frame, hop
from fewshift.errors import DataError

CLASS_ID = 3


def scans_of(folder: Path, contents: list[bytes]) -> Iterator[tuple[bytes, Scan]]:
    folder.mkdir()
    files = []
    for number, content in enumerate(contents):
        files.append(ClassFile(folder / f"{number}.tfrecords", CLASS_ID))
        files[-1].path.write_bytes(content)
    for scan in scan_files(files):
        yield contents[int(scan.file.path.stem)], scan


def records_in(content: bytes, scan: Scan) -> list[bytes]:
    return [content[a + 12 : b - 4] for a, b in zip(scan.bounds[:-1], scan.bounds[1:], strict=True)]


def check_scans(folder: Path, original: bytes, count: int, seed: int) -> None:
    stops = hop(original)
    genuine = {original[a + 12 : b - 4] for a, b in zip([0, *stops[:-1]], stops, strict=True)}
    dice = random.Random(seed)
    faulty = 0
    for content, scan in scans_of(folder, [mutate(dice, original) for _ in range(count)]):
        faulty += bool(scan.faults)
        records = records_in(content, scan)
        blamed = {fault.record for fault in scan.faults}
        for number, record in enumerate(records):
            assert number in blamed or record in genuine, "a damaged record passed"
        if not scan.faults:
            assert scan.bounds[-1] == len(content), "bytes were left out silently"
        for fault in scan.faults:
            assert 0 <= scan.offset(fault) <= len(content)
            assert len(scan.describe(fault)) < 300
    assert faulty > count // 2


def small_file() -> bytes:
    return frame([encode_example(png(number, 2 + number % 7), CLASS_ID) for number in range(12)])


@pytest.mark.slow
def test_mutated_files(tmp_path: Path) -> None:
    check_scans(tmp_path / "files", small_file(), 3000, seed=1)


@pytest.mark.slow
@pytest.mark.data
def test_mutated_real_files(tmp_path: Path, md_mini: Path) -> None:
    for domain in ("omniglot", "quickdraw", "devanagari"):
        original = (md_mini / domain / f"{CLASS_ID}.tfrecords").read_bytes()
        check_scans(tmp_path / domain, original, 400, seed=2)


def test_unchecked_scans_of_mutated_files_end_inside_the_file(tmp_path: Path) -> None:
    dice = random.Random(3)
    original = small_file()
    for number in range(300):
        path = tmp_path / f"{number}.tfrecords"
        path.write_bytes(mutate(dice, original))
        (scan,) = scan_files([ClassFile(path, CLASS_ID)], check=False, threads=1)
        assert (np.diff(scan.bounds) >= 16).all()
        assert scan.bounds[-1] <= path.stat().st_size
        assert scan.faults or scan.bounds[-1] == path.stat().st_size


def test_mutated_contents_with_true_checksums(tmp_path: Path) -> None:
    """Damage from before the checksum was made: the parser is the last to notice."""
    dice = random.Random(4)
    contents = []
    for number in range(2000):
        payload = bytearray(
            encode_example(png(number % 20, 3), dice.choice([CLASS_ID, CLASS_ID, 300, 2**40]))
        )
        if dice.random() < 0.8:
            head = dice.random() < 0.5  # image bytes may be anything, so aim at what is around them
            at = dice.randrange(25) if head else len(payload) - 1 - dice.randrange(20)
            payload[at] = dice.choice([0, 1, 0x7F, 0x80, 0xFF, payload[at] ^ 1 << dice.randrange(8)])
        contents.append(bytes(payload))
    path = tmp_path / f"{CLASS_ID}.tfrecords"
    blamed: dict[int, str] = {}
    for first in range(0, len(contents), 50):  # a file tells of its first hundred faults
        path.write_bytes(frame(contents[first : first + 50]))
        (scan,) = scan_files([ClassFile(path, CLASS_ID)])
        blamed |= {first + fault.record: fault.kind for fault in scan.faults}
    for number, content in enumerate(contents):
        try:
            label = decode_example(content).label
        except Malformed:
            assert blamed[number] == "content"
            continue
        assert blamed.get(number) == (None if label == CLASS_ID else "label")
    assert set(blamed.values()) == {"content", "label"}
    assert len(blamed) < len(contents)


@pytest.mark.slow
def test_mutated_folders_are_read_right_or_refused(tmp_path: Path) -> None:
    folder, spec = small_domain(tmp_path, (3, 4, 3))
    original = (folder / "1.tfrecords").read_bytes()
    items = [(c, i) for c in range(3) for i in range(spec.images_per_class[c])]
    genuine = set(images_of(spec, 1))
    dice = random.Random(5)
    refused = 0
    for _ in range(300):
        (folder / "1.tfrecords").write_bytes(mutate(dice, original))
        source = RecordSource(folder, spec)
        found = outcome(lambda source=source: source.read_encoded(items))
        if isinstance(found, DataError):
            assert "1.tfrecords: " in str(found)
            refused += 1
            continue
        assert found[:3] == images_of(spec, 0)
        assert set(found[3:7]) <= genuine
    assert 200 < refused < 300


def test_scanning_damaged_files_takes_little_memory(tmp_path: Path) -> None:
    dice = random.Random(6)
    original = small_file()
    contents = []
    for _ in range(60):
        data = bytearray(original)
        forge_length(dice, data)
        contents.append(bytes(data))
    list(scans_of(tmp_path / "warm", contents[:1]))
    tracemalloc.start()
    try:
        assert len(list(scans_of(tmp_path / "files", contents))) == 60
        assert tracemalloc.get_traced_memory()[1] < 40 * 2**20
    finally:
        tracemalloc.stop()


def test_mutated_index_files(tmp_path: Path) -> None:
    folder, spec = small_domain(tmp_path)
    RecordSource(folder, spec).prepare()
    good = (folder / INDEX_FILE).read_bytes()
    dice = random.Random(7)
    for _ in range(500):
        bad = mutate_plainly(dice, good)
        (folder / INDEX_FILE).write_bytes(bad)
        assert (load_index(folder / INDEX_FILE, 3) is None) == (bad != good)
