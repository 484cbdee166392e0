"""The writer: what it writes is read back, what is interrupted goes on, what does not fit is refused."""

import errno
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_records import images_of, png, record_file, small_spec

from fewshift.data import whole_files
from fewshift.data.domain import Provenance
from fewshift.data.records_folder import open_domain, open_records
from fewshift.data.records_write import UNFINISHED_FILE, write_domain
from fewshift.data.spec import flat_spec
from fewshift.data.spec_json import SPEC_FILE
from fewshift.data.suite_file import SuiteEntry, read_suite, write_suite
from fewshift.errors import DataError

SPEC = small_spec((4, 3, 5))


def images(class_id: int) -> list[bytes]:
    return images_of(SPEC, class_id)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    provenance = Provenance("drawn", "CC0-1.0", "nobody")
    assert write_domain(tmp_path / "small", SPEC, images, provenance) == 3
    domain = open_domain(tmp_path / "small")
    assert (domain.spec, domain.provenance, domain.role) == (SPEC, provenance, "unseen")
    names = sorted(path.name for path in (tmp_path / "small").iterdir())
    expected = [*(f"{i}.tfrecords" for i in range(3)), SPEC_FILE, "fewshift-index.bin", "provenance.json"]
    assert names == sorted(expected)


def test_an_interrupted_conversion_goes_on(tmp_path: Path) -> None:
    asked: list[int] = []

    def until_the_power_fails(class_id: int) -> Iterator[bytes]:
        asked.append(class_id)
        for place, image in enumerate(images(class_id)):
            if (class_id, place) == (2, 3):
                raise KeyboardInterrupt
            yield image

    with pytest.raises(KeyboardInterrupt):
        write_domain(tmp_path, SPEC, until_the_power_fails)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.tfrecords", "1.tfrecords", UNFINISHED_FILE]
    before = (tmp_path / "0.tfrecords").stat().st_mtime_ns
    asked.clear()
    assert write_domain(tmp_path, SPEC, lambda c: asked.append(c) or images(c)) == 1  # type: ignore[func-returns-value]
    assert asked == [2]
    assert (tmp_path / "0.tfrecords").stat().st_mtime_ns == before
    assert open_domain(tmp_path).spec == SPEC
    assert write_domain(tmp_path, SPEC, lambda _: pytest.fail("asked for what is there")) == 0


def test_what_a_killed_run_leaves_is_removed(tmp_path: Path) -> None:
    script = "\n".join(
        [
            "import os, sys",
            f"sys.path.insert(0, {str(Path(__file__).parent)!r})",
            "from pathlib import Path",
            "from small_records import images_of, small_spec",
            "from fewshift.data.records_write import write_domain",
            "def images(c):",
            "    yield from images_of(small_spec(), c)[:2]",
            "    if c == 1: os.kill(os.getpid(), 9)",
            "    yield from images_of(small_spec(), c)[2:]",
            f"write_domain(Path({str(tmp_path)!r}), small_spec(), images)",
        ]
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -9
    assert len(list(tmp_path.glob(".1.tfrecords.*.part"))) == 1
    assert write_domain(tmp_path, SPEC, images) == 2
    assert not list(tmp_path.glob(".*"))
    assert open_domain(tmp_path).spec == SPEC


def test_two_at_a_time_are_refused_and_nothing_is_lost(tmp_path: Path) -> None:
    def while_another_starts(class_id: int) -> Iterator[bytes]:
        yield images(class_id)[0]
        if class_id == 1:
            with pytest.raises(DataError, match="another process is writing this domain: wait for it to end"):
                write_domain(tmp_path, SPEC, lambda _: pytest.fail("asked for an image"))
        yield from images(class_id)[1:]

    assert write_domain(tmp_path, SPEC, while_another_starts) == 3
    assert not list(tmp_path.glob(".*"))
    assert write_domain(tmp_path, SPEC, lambda _: pytest.fail("asked for what is there")) == 0


def test_damaged_and_short_files_of_an_earlier_run_are_written_again(tmp_path: Path) -> None:
    write_domain(tmp_path, SPEC, images)
    good = {path.name: path.read_bytes() for path in tmp_path.glob("*.tfrecords")}
    (tmp_path / "0.tfrecords").write_bytes(good["0.tfrecords"][:-2])
    record_file(tmp_path / "1.tfrecords", images(1)[:2], 1)
    record_file(tmp_path / "2.tfrecords", images(2), 1)
    assert write_domain(tmp_path, SPEC, images) == 3
    assert {path.name: path.read_bytes() for path in tmp_path.glob("*.tfrecords")} == good


@pytest.mark.parametrize("finished", [True, False])
def test_another_domain_is_not_mixed_in(tmp_path: Path, finished: bool) -> None:
    write_domain(tmp_path, SPEC, images)
    if not finished:
        (tmp_path / SPEC_FILE).rename(tmp_path / UNFINISHED_FILE)
    names, counts = SPEC.class_names, SPEC.images_per_class
    others = [
        flat_spec("small", (names[1], names[0], names[2]), counts, {"train": 1, "valid": 1, "test": 1}),
        flat_spec("small", names, counts, {"train": 2, "test": 1}),
        flat_spec("other", names, counts, {"train": 1, "valid": 1, "test": 1}),
    ]
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for other in others:
        with pytest.raises(DataError, match="the folder holds another domain, or other classes or splits of"):
            write_domain(tmp_path, other, images)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_records_of_unknown_origin(tmp_path: Path) -> None:
    record_file(tmp_path / "0.tfrecords", images(0), 0)
    with pytest.raises(DataError, match=r"it holds records but no dataset_spec\.json"):
        write_domain(tmp_path, SPEC, images)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ([png(1)] * 2, r"class 1 \(class 1\): 2 images were given but its spec says 3"),
        ([png(1)] * 4, "4 images were given but its spec says 3"),
        ([png(1), b"", png(2)], "image 1 has 0 bytes"),
        ([], "0 images were given but its spec says 3"),
    ],
)
def test_wrong_images_leave_nothing_half_written(tmp_path: Path, given: list[bytes], sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        write_domain(tmp_path, SPEC, lambda c: given if c == 1 else images(c))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.tfrecords", UNFINISHED_FILE]


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fsync
    calls = []

    def full(handle: int) -> None:
        calls.append(handle)
        if len(calls) == 3:  # the spec, class 0, class 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(handle)

    monkeypatch.setattr(whole_files.os, "fsync", full)
    with pytest.raises(DataError, match=r"No space left on device\): make room .* keeps what is finished"):
        write_domain(tmp_path, SPEC, images)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.tfrecords", UNFINISHED_FILE]
    assert write_domain(tmp_path, SPEC, images) == 2


def test_a_full_disk_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(whole_files.os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as told:
        whole_files.write_whole(tmp_path / "table.md", b"a table")
    assert told.value.filename == str(tmp_path / "table.md")
    assert not list(tmp_path.iterdir())
    monkeypatch.undo()
    with pytest.raises(OSError, match=r"\[") as told:
        whole_files.write_whole(tmp_path, b"a table")
    assert told.value.filename == str(tmp_path)


def test_classes_larger_than_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fewshift.data.records_write._BATCH_BYTES", 400)
    write_domain(tmp_path, SPEC, images)
    assert open_domain(tmp_path).source.read_encoded([(2, i) for i in range(5)]) == images(2)


# --- suite.json


def test_suite_file_gives_roles_order_and_origin(tmp_path: Path) -> None:
    for name in ("b", "a", "c"):
        write_domain(tmp_path / name, small_spec(name=name), images, Provenance(f"made by {name}"))
    provenance = Provenance("somewhere", "CC-BY-4.0", "somebody")
    entries = {
        "c": SuiteEntry("seen", provenance),
        "a": SuiteEntry("valid_unseen"),
        "gone": SuiteEntry("seen"),
    }
    write_suite(tmp_path, entries)
    assert read_suite(tmp_path) == entries
    found = open_records(tmp_path, prepare=False)
    assert [(domain.name, domain.role) for domain in found] == [
        ("c", "seen"),
        ("a", "valid_unseen"),
        ("b", "unseen"),
    ]
    assert found[0].provenance == provenance == open_domain(tmp_path / "c").provenance
    assert found[1].provenance == Provenance("made by a")  # the suite says nothing, the domain does
    assert [domain.role for domain in open_records(tmp_path / "a")] == ["valid_unseen"]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (
            {"a": {"role": "trained"}},
            "the role of a is 'trained': it must be one of seen, valid_unseen, unseen",
        ),
        ({"a": {}}, "the role of a is None"),
        ({"a": "seen"}, "a is 'seen': it must be a JSON object"),
        ({"a": {"role": "seen", "licence": 3}}, "licence of a is 3: it must be a text"),
        ([], "it must hold a JSON object"),
    ],
)
def test_wrong_suite_files(tmp_path: Path, content: object, sentence: str) -> None:
    write_domain(tmp_path / "a", small_spec(name="a"), images)
    (tmp_path / "suite.json").write_text(json.dumps(content))
    with pytest.raises(DataError, match=f"suite.json: .*{sentence}"):
        open_records(tmp_path)


def test_suite_files_that_cannot_be_read(tmp_path: Path) -> None:
    write_domain(tmp_path / "a", small_spec(name="a"), images)
    (tmp_path / "suite.json").write_bytes(b"\xff\xff")
    with pytest.raises(DataError, match="it cannot be read as text"):
        open_records(tmp_path)
    (tmp_path / "suite.json").unlink()
    (tmp_path / "suite.json").mkdir()
    with pytest.raises(DataError, match="it cannot be read as text"):
        open_domain(tmp_path / "a")
