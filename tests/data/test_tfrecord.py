"""Framing and scanning: golden bytes, and every kind of damage named with its record and byte."""

import os
import struct
from pathlib import Path

import numpy as np
import pytest
from small_records import png, record_file

from fewshift.data import scan as scan_module
from fewshift.data.crc32c import crc32c, masked
from fewshift.data.example import encode_example
from fewshift.data.scan import scan_files
from fewshift.data.scan_window import MAX_FAULTS, ClassFile, Scan
from fewshift.data.tfrecord import MAX_RECORD, frame, hop
from fewshift.errors import DataError

GOLDEN_7 = bytes.fromhex(
    "2500000000000000eabc36f3"
    "0a230a110a05696d61676512080a060a04ffd8ffd90a0e0a056c6162656c12051a030a0107"
    "41d5f5fb"
)
GOLDEN_300 = bytes.fromhex(
    "2600000000000000734fe300"
    "0a240a110a05696d61676512080a060a04ffd8ffd90a0f0a056c6162656c12061a040a02ac02"
    "1142142a"
)
IMAGE = bytes.fromhex("ffd8ffd9")


def scan(path: Path, class_id: int = 7, check: bool = True) -> Scan:
    (result,) = scan_files([ClassFile(path, class_id)], check=check)
    return result


def head(length: int) -> bytes:
    packed = struct.pack("<Q", length)
    return packed + struct.pack("<I", masked(np.array([crc32c(packed)], np.uint32))[0])


def test_golden_frames() -> None:
    assert frame([encode_example(IMAGE, 7)]) == GOLDEN_7
    assert frame([encode_example(IMAGE, 300)]) == GOLDEN_300
    assert frame([encode_example(IMAGE, 7), encode_example(IMAGE, 300)]) == GOLDEN_7 + GOLDEN_300
    assert frame([]) == b""


def test_hop() -> None:
    assert hop(GOLDEN_7 + GOLDEN_300) == [53, 107]
    assert hop((GOLDEN_7 + GOLDEN_300)[:-1]) == [53]
    assert hop(b"") == hop(GOLDEN_7[:15]) == hop(GOLDEN_7[:52]) == []
    assert hop(b"\xff" * 100) == []


@pytest.mark.parametrize("check", [True, False])
def test_a_sound_file(tmp_path: Path, check: bool) -> None:
    path = tmp_path / "7.tfrecords"
    path.write_bytes(GOLDEN_7 * 3)
    found = scan(path, check=check)
    assert found.bounds.tolist() == [0, 53, 106, 159]
    assert (found.records, found.faults, found.size) == (3, (), 159)
    assert found.modified == path.stat().st_mtime_ns


@pytest.mark.parametrize("check", [True, False])
def test_an_empty_file_has_no_records(tmp_path: Path, check: bool) -> None:
    (tmp_path / "7.tfrecords").write_bytes(b"")
    found = scan(tmp_path / "7.tfrecords", check=check)
    assert (found.records, found.faults) == (0, ())


@pytest.mark.parametrize("check", [True, False])
def test_a_file_cut_anywhere_is_truncated_there(tmp_path: Path, check: bool) -> None:
    path = tmp_path / "7.tfrecords"
    whole = GOLDEN_7 * 2
    for size in range(54, len(whole)):
        path.write_bytes(whole[:size])
        found = scan(path, check=check)
        (fault,) = found.faults
        assert (fault.kind, fault.record, found.offset(fault), found.records) == ("truncated", 1, 53, 1)
        assert found.describe(fault).startswith("record 1 at byte 53 is cut off")


def test_every_flipped_bit_is_found_with_its_record(tmp_path: Path) -> None:
    path = tmp_path / "7.tfrecords"
    whole = GOLDEN_7 * 3
    kinds = set()
    for bit in range(8 * 53, 8 * 106):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        found = scan(path)
        fault = found.faults[0]
        assert (fault.record, found.offset(fault), len(found.faults)) == (1, 53, 1)
        assert fault.kind == ("length" if bit // 8 < 53 + 12 else "checksum")
        assert found.records == (1 if fault.kind == "length" else 3)
        kinds.add(fault.kind)
    assert kinds == {"length", "checksum"}


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("length", [2**64 - 1, 2**63, 2**62, MAX_RECORD + 1])
def test_forged_lengths_with_a_true_checksum(tmp_path: Path, length: int, check: bool) -> None:
    path = tmp_path / "7.tfrecords"
    path.write_bytes(GOLDEN_7 + head(length) + bytes(1000))
    found = scan(path, check=check)
    assert found.faults[0].kind == "length"
    assert "which no image has" in found.describe(found.faults[0])


@pytest.mark.parametrize("check", [True, False])
def test_a_huge_length_in_a_huge_empty_file_is_not_allocated(tmp_path: Path, check: bool) -> None:
    path = tmp_path / "7.tfrecords"
    with path.open("wb") as out:
        out.write(head(1 << 40))
        out.truncate((1 << 40) + 16)  # a terabyte of nothing
    found = scan(path, check=check)
    assert found.faults[0].text == "claims 1,099,511,627,776 bytes, which no image has"


@pytest.mark.parametrize("check", [True, False])
def test_a_file_of_zeros_stops_at_its_first_record(tmp_path: Path, check: bool) -> None:
    path = tmp_path / "7.tfrecords"
    with path.open("wb") as out:
        out.truncate(1 << 33)
    found = scan(path, check=check)
    assert (found.faults[0].kind, found.faults[0].record, found.records) == ("length", 0, 0)


def test_wrong_labels_and_contents(tmp_path: Path) -> None:
    path = tmp_path / "7.tfrecords"
    path.write_bytes(GOLDEN_7 + GOLDEN_300 + frame([b"", b"no example"]) + GOLDEN_7)
    found = scan(path)
    assert [(fault.kind, fault.record) for fault in found.faults] == [
        ("label", 1),
        ("content", 2),
        ("content", 3),
    ]
    assert found.describe(found.faults[0]) == "record 1 at byte 53 is labelled 300 in the file of class 7"
    assert "is not an image with a label (the feature 'image' is missing)" in found.describe(found.faults[1])
    assert found.records == 5


def test_one_file_s_damage_does_not_touch_the_next(tmp_path: Path) -> None:
    files = [ClassFile(tmp_path / f"{i}.tfrecords", i) for i in range(6)]
    for file in files:
        record_file(file.path, [png(k) for k in range(5)], file.class_id)
    sound = files[2].path.read_bytes()
    files[1].path.write_bytes(sound[:-3])  # also of the wrong class
    files[3].path.write_bytes(b"\x01" + files[3].path.read_bytes()[1:])
    found = {scan.file.class_id: scan for scan in scan_files(files, threads=1)}
    assert [found[i].records for i in range(6)] == [5, 4, 5, 0, 5, 5]
    assert [bool(found[i].faults) for i in range(6)] == [False, True, False, True, False, False]
    assert [fault.kind for fault in found[1].faults] == ["label"] * 4 + ["truncated"]


def test_faults_are_counted_only_so_far(tmp_path: Path) -> None:
    path = record_file(tmp_path / "7.tfrecords", [b"x"] * (MAX_FAULTS + 50), 8)
    assert len(scan(path).faults) == MAX_FAULTS


@pytest.mark.parametrize("window", [64, 500, 5000])
def test_windows_of_any_size_give_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    images = [png(k, size=1 + k % 9) for k in range(40)]
    path = record_file(tmp_path / "7.tfrecords", images, 7)
    damaged = bytearray(path.read_bytes())
    expected = scan(path)
    damaged[int(expected.bounds[20]) + 30] ^= 4
    damaged[int(expected.bounds[30]) + 3] ^= 4
    monkeypatch.setattr(scan_module, "WINDOW", window)
    assert scan(path).bounds.tolist() == expected.bounds.tolist()
    path.write_bytes(damaged)
    found = scan(path)
    assert [(fault.kind, fault.record) for fault in found.faults] == [("checksum", 20), ("length", 30)]
    assert found.bounds.tolist() == expected.bounds.tolist()[:31]


@pytest.mark.parametrize("check", [True, False])
def test_missing_unreadable_and_odd_files(tmp_path: Path, check: bool) -> None:
    with pytest.raises(DataError, match=r"7\.tfrecords: the file is missing: copy or convert"):
        scan(tmp_path / "7.tfrecords", check=check)
    (tmp_path / "8.tfrecords").mkdir()
    with pytest.raises(DataError, match=r"8\.tfrecords: it cannot be read"):
        scan(tmp_path / "8.tfrecords", check=check)
    os.mkfifo(tmp_path / "9.tfrecords")
    assert scan(tmp_path / "9.tfrecords", check=check).records == 0  # and does not wait for a writer


def test_pypi_tfrecord_reads_what_we_write_and_we_read_what_it_writes(tmp_path: Path) -> None:
    reader = pytest.importorskip("tfrecord.reader")
    writer_module = pytest.importorskip("tfrecord.writer")
    images = [png(k) for k in range(5)]
    path = record_file(tmp_path / "7.tfrecords", images, 7)
    theirs = list(reader.tfrecord_loader(str(path), None, {"image": "byte", "label": "int"}))
    assert [bytes(example["image"]) for example in theirs] == images
    assert [int(example["label"][0]) for example in theirs] == [7] * 5
    other = tmp_path / "other.tfrecords"
    writer = writer_module.TFRecordWriter(str(other))
    for image in images:
        writer.write({"label": (7, "int"), "image": (image, "byte")})
    writer.close()
    assert (scan(other).records, scan(other).faults) == (5, ())
