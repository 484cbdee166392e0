"""The inspector finds each kind of damage, in its place, and goes on to the next."""

import errno
import json
import os
import shutil
from pathlib import Path

import pytest
from small_records import images_of, png, record_file, small_domain

from fewshift.data.inspect import DomainReport, Finding, inspect_records
from fewshift.data.spec_json import SPEC_FILE, write_spec
from fewshift.data.suite_file import SuiteEntry, write_suite


def only(root: Path, **options: bool) -> DomainReport:
    (report,) = inspect_records(root, **options)
    return report


def found(report: DomainReport) -> list[tuple[str, str, str]]:
    return [(finding.severity, finding.kind, finding.where.name) for finding in report.findings]


def change_spec(folder: Path, key: str, place: str, value: object) -> None:
    content = json.loads((folder / SPEC_FILE).read_text())
    content[key][place] = value
    (folder / SPEC_FILE).write_text(json.dumps(content))


def test_a_whole_domain_and_nothing_is_written(tmp_path: Path) -> None:
    folder, spec = small_domain(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    for root in (tmp_path, folder):
        report = only(root, decode=True)
        assert (report.name, report.whole, report.findings, report.official) == ("small", True, (), None)
        assert (report.spec, report.images) == (spec, 12)
        assert report.size == sum(path.stat().st_size for path in folder.glob("*.tfrecords"))
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_all_kinds_of_damage_at_once(tmp_path: Path) -> None:
    folder, spec = small_domain(tmp_path, (4,) * 9)
    files = [folder / f"{i}.tfrecords" for i in range(9)]
    files[0].unlink()
    data = bytearray(files[1].read_bytes())
    data[40] ^= 1
    files[1].write_bytes(data)
    files[2].write_bytes(files[2].read_bytes()[:-5])
    record_file(files[3], images_of(spec, 3)[:3], 3)
    shutil.copy(files[5], files[4])
    record_file(files[6], [png(1), b"no picture", png(2), png(3)], 6)
    (folder / "9.tfrecords").write_bytes(b"")
    (folder / "3_1.tfrecords").write_bytes(b"")
    data = bytearray(files[7].read_bytes())
    data[3] ^= 1
    files[7].write_bytes(data)
    report = only(tmp_path, decode=True)
    assert not report.whole
    assert found(report) == [
        ("error", "missing file", "0.tfrecords"),
        ("warning", "extra file", "3_1.tfrecords"),
        ("warning", "extra file", "9.tfrecords"),
        ("error", "checksum", "1.tfrecords"),
        ("error", "truncated", "2.tfrecords"),
        ("error", "count", "2.tfrecords"),
        ("error", "count", "3.tfrecords"),
        *[("error", "label", "4.tfrecords")] * 4,
        ("error", "length", "7.tfrecords"),
        ("error", "count", "7.tfrecords"),
        ("error", "image", "6.tfrecords"),
    ]
    by_kind: dict[str, Finding] = {finding.kind: finding for finding in report.findings}
    record = len(files[6].read_bytes())
    assert by_kind["truncated"].offset is not None
    assert f"record 3 at byte {by_kind['truncated'].offset} is cut off" in by_kind["truncated"].text
    assert by_kind["checksum"].offset == by_kind["length"].offset == 0
    assert 0 < (by_kind["image"].offset or 0) < record
    assert by_kind["label"].text.endswith(
        "is labelled 5 in the file of class 4: copy or convert this class again"
    )
    assert by_kind["image"].sentence.startswith(f"{files[6]}: record 1 at byte ")
    assert by_kind["count"].text.startswith("it holds 0 whole records but dataset_spec.json says 4")


def test_a_file_that_cannot_be_read_does_not_hide_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, spec = small_domain(tmp_path)
    shutil.copy(folder / "1.tfrecords", folder / "0.tfrecords")
    bad, read = (folder / "1.tfrecords").stat().st_ino, os.pread

    def from_a_bad_disk(handle: int, size: int, offset: int) -> bytes:
        if os.fstat(handle).st_ino == bad:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read(handle, size, offset)

    monkeypatch.setattr(os, "pread", from_a_bad_disk)
    report = only(tmp_path)
    assert found(report)[0] == ("error", "unreadable", "1.tfrecords")
    assert report.findings[0].text.startswith("it cannot be read (Input/output error): check the disk")
    assert {finding.kind for finding in report.findings[1:]} == {"label", "count"}
    assert report.images == spec.images_per_class[1] + spec.images_per_class[2]


def test_without_checksums_only_lengths_are_followed(tmp_path: Path) -> None:
    folder, _ = small_domain(tmp_path)
    data = bytearray((folder / "0.tfrecords").read_bytes())
    data[40] ^= 1
    (folder / "0.tfrecords").write_bytes(data)
    assert only(tmp_path, verify_crc=False).whole
    assert not only(tmp_path).whole
    (folder / "0.tfrecords").write_bytes(data[:-1])
    assert found(only(tmp_path, verify_crc=False)) == [
        ("error", "truncated", "0.tfrecords"),
        ("error", "count", "0.tfrecords"),
    ]


def test_what_the_spec_says_wrong(tmp_path: Path) -> None:
    folder, _ = small_domain(tmp_path, (4, 1, 5))
    change_spec(folder, "class_names", "2", "class 0")
    folder.rename(tmp_path / "renamed")
    report = only(tmp_path)
    assert found(report) == [
        ("warning", "name", SPEC_FILE),
        ("error", "duplicate name", SPEC_FILE),
        ("warning", "few images", SPEC_FILE),
    ]
    assert "classes 0 and 2 are both named 'class 0'" in report.findings[1].text
    assert "class 1 (class 1) has one image and a task needs two" in report.findings[2].text


def test_specs_that_cannot_be_read_do_not_stop_the_rest(tmp_path: Path) -> None:
    small_domain(tmp_path, name="good")
    broken, _ = small_domain(tmp_path, name="broken")
    change_spec(broken, "images_per_class", "1", -3)
    legacy, _ = small_domain(tmp_path, name="legacy")
    (legacy / SPEC_FILE).unlink()
    (legacy / "dataset_spec.pkl").write_bytes(b"")
    reports = {report.name: report for report in inspect_records(tmp_path)}
    assert {name: report.whole for name, report in reports.items()} == {
        "good": True,
        "broken": False,
        "legacy": False,
    }
    assert reports["broken"].findings[0].text.startswith("images_per_class of 1 is -3")
    assert "a pickled spec can run code" in reports["legacy"].findings[0].text
    assert reports["legacy"].spec is None


def test_the_suite_names_the_order_and_what_is_missing(tmp_path: Path) -> None:
    for name in "abc":
        small_domain(tmp_path, name=name)
    write_suite(tmp_path, {name: SuiteEntry("seen") for name in ("c", "lost", "a")})
    reports = inspect_records(tmp_path)
    assert [report.name for report in reports] == ["lost", "c", "a", "b"]
    assert found(reports[0]) == [("error", "missing folder", "lost")]
    assert all(report.whole for report in reports[1:])


def test_two_folders_of_one_name_are_both_inspected(tmp_path: Path) -> None:
    folder, _ = small_domain(tmp_path)
    shutil.copytree(folder, tmp_path / "twin")
    assert [report.folder.name for report in inspect_records(tmp_path)] == ["small", "twin"]


def test_an_official_name_for_another_dataset_is_noted(tmp_path: Path) -> None:
    small_domain(tmp_path, name="dtd")
    report = only(tmp_path)
    assert report.whole
    assert report.official is False
    assert found(report) == [("note", "official", SPEC_FILE)]
    assert (
        "1/1/1 classes and 12 images, where Meta-Dataset's own has 33/7/7 classes and 5,640"
        in report.findings[0].text
    )


def test_the_official_spec_itself(tmp_path: Path) -> None:
    from fewshift.data.official import official_spec

    spec = official_spec("dtd")
    assert spec is not None
    write_spec(tmp_path / "dtd", spec)
    report = only(tmp_path)
    assert report.official is True
    assert {finding.kind for finding in report.findings} == {"missing file"}
    assert len(report.findings) == 47
    change_spec(tmp_path / "dtd", "class_names", "0", "tartan")
    report = only(tmp_path)
    assert report.official is False
    assert "other counts, names or groups" in report.findings[-1].text


@pytest.mark.data
def test_md_mini_is_whole(md_mini: Path) -> None:
    reports = inspect_records(md_mini)
    assert len(reports) == 16
    assert all(report.whole for report in reports)
    assert sum(report.images for report in reports) == 64_076
    assert {finding.severity for report in reports for finding in report.findings} == {"note"}
