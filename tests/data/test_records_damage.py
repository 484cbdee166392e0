"""Records that disagree with their spec or were changed: noticed, and said with file and byte."""

import os
import shutil
from functools import lru_cache
from pathlib import Path

import pytest
from small_records import images_of, png, record_file

from fewshift.data import descriptors
from fewshift.data.records import RecordSource
from fewshift.data.records_folder import open_domain
from fewshift.data.spec import Spec
from fewshift.errors import DataError

pytestmark = pytest.mark.usefixtures("own_cache")


def test_counts_must_agree_with_the_spec(domain: tuple[Path, Spec]) -> None:
    folder, _ = domain
    record_file(folder / "1.tfrecords", [png(1)] * 2, 1)
    with pytest.raises(
        DataError, match=r"1\.tfrecords: it holds 2 records but dataset_spec.json says 3: run"
    ):
        open_domain(folder)


def test_a_missing_file(domain: tuple[Path, Spec]) -> None:
    folder, _ = domain
    (folder / "2.tfrecords").unlink()
    with pytest.raises(DataError, match=r"2\.tfrecords: the file is missing"):
        open_domain(folder)


def test_a_wrong_label(domain: tuple[Path, Spec]) -> None:
    folder, _ = domain
    shutil.copy(folder / "2.tfrecords", folder / "1.tfrecords")
    with pytest.raises(
        DataError, match=r"1\.tfrecords: record 0 at byte 0 is labelled 2 in the file of class 1"
    ):
        open_domain(folder)


def test_a_wrong_label_is_noticed_at_the_read_when_it_came_after_indexing(domain: tuple[Path, Spec]) -> None:
    folder, spec = domain
    source = RecordSource(folder, spec)
    source.prepare()
    path = folder / "1.tfrecords"
    before = path.stat()
    record_file(path, images_of(spec, 1), 2)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(
        DataError, match=r"1\.tfrecords: record 1 at byte \d+ is labelled 2 in the file of class 1"
    ):
        source.read([(0, 0), (1, 1)])


def test_a_file_that_changes_under_an_open_source(
    domain: tuple[Path, Spec], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, spec = domain
    monkeypatch.setattr(descriptors, "_file", lru_cache(1)(descriptors._File))
    source = RecordSource(folder, spec)
    source.read([(0, 0)])
    record_file(folder / "0.tfrecords", [png(k, 9) for k in range(4)], 0)
    source.read([(1, 0)])  # closes the file of class 0
    with pytest.raises(DataError, match=r"0\.tfrecords: the file has changed since it was indexed: open"):
        source.read([(0, 0)])
    assert RecordSource(folder, spec).read([(0, 0)])[0].shape == (9, 9, 3)


def test_an_overwritten_file_with_its_old_size_and_time(domain: tuple[Path, Spec]) -> None:
    folder, spec = domain
    path = folder / "0.tfrecords"
    source = RecordSource(folder, spec)
    source.prepare()
    before, size = path.stat(), path.stat().st_size
    path.write_bytes(bytes(size))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(DataError, match=r"record 1 at byte .* is not where it was when the file was indexed"):
        source.read([(0, 1)])


def test_an_image_that_cannot_be_decoded(domain: tuple[Path, Spec]) -> None:
    folder, spec = domain
    record_file(folder / "1.tfrecords", [png(1), b"no picture", png(2)], 1)
    source = RecordSource(folder, spec)
    assert source.read([(1, 0), (1, 2)])
    with pytest.raises(DataError, match=r"1\.tfrecords: record 1 at byte \d+: .*no picture"):
        source.read([(1, 0), (1, 1)])
