"""The index of a records folder: built once, kept beside it or in the cache, built anew where it is wrong."""

import os
import pickle
from pathlib import Path

import pytest
from record_items import damage
from small_records import images_of, png, record_file, small_domain

from fewshift.data import index_cache
from fewshift.data.index_cache import INDEX_FILE, index_folder, load_index
from fewshift.data.records import RecordSource
from fewshift.data.records_folder import open_domain
from fewshift.data.spec import Spec
from fewshift.errors import DataError

pytestmark = pytest.mark.usefixtures("own_cache")


def test_the_index_is_built_once(domain: tuple[Path, Spec], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, _ = domain
    open_domain(folder)
    assert (folder / INDEX_FILE).is_file()
    monkeypatch.setattr(index_cache, "scan_files", lambda *_, **__: pytest.fail("scanned again"))
    assert open_domain(folder).source.read([(0, 1)])


def test_only_changed_files_are_scanned_again(
    domain: tuple[Path, Spec], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, spec = domain
    index_folder(folder, 3)
    scanned: list[int] = []
    real = index_cache.scan_files

    def watch(files, **options):  # type: ignore[no-untyped-def]
        scanned.extend(file.class_id for file in files)
        return real(files, **options)

    monkeypatch.setattr(index_cache, "scan_files", watch)
    new = [png(77 + k) for k in range(3)]
    record_file(folder / "1.tfrecords", new, 1)
    os.utime(folder / "2.tfrecords", ns=(1, 1))
    source = RecordSource(folder, spec)
    assert source.read_encoded([(1, 2), (0, 0), (2, 0)]) == [
        new[2],
        images_of(spec, 0)[0],
        images_of(spec, 2)[0],
    ]
    assert scanned == [1, 2]


def test_damaged_content_is_refused_while_indexing(domain: tuple[Path, Spec]) -> None:
    folder, spec = domain
    damage(folder / "1.tfrecords", -10)
    with pytest.raises(
        DataError, match=r"1\.tfrecords: record 2 at byte \d+ is damaged: .*convert this class"
    ):
        RecordSource(folder, spec).prepare()


def test_a_damaged_index_file_is_built_anew(domain: tuple[Path, Spec]) -> None:
    folder, _ = domain
    index_folder(folder, 3)
    good = (folder / INDEX_FILE).read_bytes()
    expected = [entry.bounds.tolist() for entry in index_folder(folder, 3).entries]
    for place in range(0, len(good), 3):
        bad = bytearray(good)
        bad[place] ^= 0x41
        (folder / INDEX_FILE).write_bytes(bad)
        assert load_index(folder / INDEX_FILE, 3) is None
    for bad in (b"", good[:-8], good[:20], good + bytes(8), b"x" * 1000):
        (folder / INDEX_FILE).write_bytes(bad)
        assert [entry.bounds.tolist() for entry in index_folder(folder, 3).entries] == expected
    assert (folder / INDEX_FILE).read_bytes() == good
    assert load_index(folder / INDEX_FILE, 4) is None


def test_a_read_only_folder_keeps_its_index_in_the_cache(domain: tuple[Path, Spec], own_cache: Path) -> None:
    folder, spec = domain
    folder.chmod(0o555)
    try:
        source = RecordSource(folder, spec)
        assert source.read_encoded([(0, 0)]) == [images_of(spec, 0)[0]]
        assert not (folder / INDEX_FILE).exists()
        (kept,) = (own_cache / "index").iterdir()
        assert index_folder(folder, 3).file == kept
    finally:
        folder.chmod(0o755)


def test_an_old_index_beside_records_does_not_hide_the_one_in_the_cache(
    domain: tuple[Path, Spec], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = domain
    index_folder(folder, 3)
    for class_id in range(3):
        os.utime(folder / f"{class_id}.tfrecords", ns=(class_id, class_id))
    monkeypatch.setattr(index_cache, "_may_write", lambda _: False)
    kept = index_folder(folder, 3).file  # scanned, and kept elsewhere
    assert kept is not None
    assert kept.parent != folder
    monkeypatch.setattr(index_cache, "scan_files", lambda *_, **__: pytest.fail("scanned again"))
    assert index_folder(folder, 3).file == kept


def test_without_any_place_to_keep_it_the_index_stays_in_memory(
    domain: tuple[Path, Spec], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, spec = domain
    folder.chmod(0o555)
    monkeypatch.setenv("FEWSHIFT_CACHE", "/dev/null/nowhere")
    try:
        source = RecordSource(folder, spec)
        source.prepare()
        again = pickle.loads(pickle.dumps(source))
        monkeypatch.setattr(index_cache, "scan_files", lambda *_, **__: pytest.fail("scanned again"))
        assert again.read_encoded([(2, 4)]) == [images_of(spec, 2)[4]]
    finally:
        folder.chmod(0o755)


def test_an_interrupted_scan_keeps_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, _ = small_domain(tmp_path, (3,) * 30, "many")
    damage(folder / "29.tfrecords", 40)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)  # files are scanned one by one
    with pytest.raises(DataError, match=r"29\.tfrecords: record 0 at byte 0 is damaged"):
        index_folder(folder, 30)
    kept = load_index(folder / INDEX_FILE, 30)
    assert kept is not None
    assert [entry.version > (0, 0) for entry in kept.entries] == [True] * 29 + [False]
