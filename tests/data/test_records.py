"""Reading records at random: equal to what was written, from threads and processes, with few open files."""

import multiprocessing
import os
import pickle
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from record_items import everything
from small_records import images_of, png, small_domain

from fewshift.data import descriptors
from fewshift.data.decoding import decode
from fewshift.data.descriptors import kept_open, read_at
from fewshift.data.records import RecordSource
from fewshift.data.records_folder import open_domain
from fewshift.data.spec import Spec
from fewshift.errors import DataError

pytestmark = pytest.mark.usefixtures("own_cache")


def test_reads_any_items_in_the_order_asked(domain: tuple[Path, Spec]) -> None:
    folder, spec = domain
    source = RecordSource(folder, spec)
    items = [(2, 4), (0, 0), (1, 2), (2, 4), (0, 3)]
    assert source.read_encoded(items) == [images_of(spec, c)[i] for c, i in items]
    for pixels, (c, i) in zip(source.read(items), items, strict=True):
        assert np.array_equal(pixels, decode(images_of(spec, c)[i], ""))
    assert source.read([]) == source.read_encoded([]) == []


def test_large_reads_come_in_batches(domain: tuple[Path, Spec], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, spec = domain
    monkeypatch.setattr("fewshift.data.records._BATCH_BYTES", 300)
    items = everything(spec)[::-1] * 2
    assert RecordSource(folder, spec).read_encoded(items) == [images_of(spec, c)[i] for c, i in items]


@pytest.mark.parametrize(("one_go", "reads"), [(2**20, 3), (0, 12)])
def test_neighbours_are_read_in_one_go(
    domain: tuple[Path, Spec], monkeypatch: pytest.MonkeyPatch, one_go: int, reads: int
) -> None:
    folder, spec = domain
    done = 0

    def counted(handle: int, size: int, offset: int) -> bytes:
        nonlocal done
        done += 1
        return read_at(handle, size, offset)

    source = RecordSource(folder, spec)
    source.prepare()
    monkeypatch.setattr("fewshift.data.records._ONE_GO", one_go)
    monkeypatch.setattr("fewshift.data.records.read_at", counted)
    items = everything(spec)[::-1]
    assert source.read_encoded(items) == [images_of(spec, c)[i] for c, i in items]
    assert done == reads


@pytest.mark.parametrize("item", [(3, 0), (-1, 0), (0, 4), (0, -1), (10**12, 0)])
def test_places_outside_the_domain(domain: tuple[Path, Spec], item: tuple[int, int]) -> None:
    with pytest.raises(DataError, match=r"small: .* has no"):
        RecordSource(*domain).read([item])


def test_unusual_layouts_are_read_too(tmp_path: Path, domain: tuple[Path, Spec]) -> None:
    from fewshift.data.tfrecord import frame

    folder, spec = domain
    image = png(5)
    assert len(image) > 127
    entry = b"\x0a\x05image\x12\xe1\x01\x0a\xde\x01\x0a\xdb\x01"  # for 219 bytes
    entries = b"\x0a\x0e\x0a\x05label\x12\x05\x1a\x03\x0a\x01\x00"  # the label first
    image = image.ljust(219, b"\0")[:219]
    entries += b"\x0a" + varint(len(entry) + 219) + entry + image
    path = folder / "0.tfrecords"
    path.write_bytes(frame([b"\x0a" + varint(len(entries)) + entries] * 4))
    assert RecordSource(folder, spec).read_encoded([(0, 2), (1, 0)]) == [image, images_of(spec, 1)[0]]


def varint(value: int) -> bytes:
    return bytes([value & 0x7F | 0x80, value >> 7]) if value > 127 else bytes([value])


def open_now(monkeypatch: pytest.MonkeyPatch, most: int) -> weakref.WeakSet[Any]:
    """The files that are open from now on, of which so many may stay open."""
    found: weakref.WeakSet[Any] = weakref.WeakSet()

    def noted(path: Path, version: descriptors.Version) -> Any:
        file = descriptors._File(path, version)
        found.add(file)
        return file

    monkeypatch.setattr(descriptors, "_file", lru_cache(most)(noted))
    return found


def test_many_threads_with_few_descriptors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, spec = small_domain(tmp_path, (3,) * 40, "many")
    files = open_now(monkeypatch, 5)
    source = RecordSource(folder, spec)
    items = everything(spec)
    expected = [images_of(spec, c)[i] for c, i in items]
    most = 0

    def read(seed: int) -> bool:
        nonlocal most
        order = np.random.default_rng(seed).permutation(len(items))
        found = source.read_encoded([items[k] for k in order])
        most = max(most, len(files))
        return found == [expected[k] for k in order]

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(60)))
    assert len(files) == 5
    assert 5 <= most <= 5 + 8


def test_descriptors_stay_bounded_over_all_domains(tmp_path: Path) -> None:
    folders = [small_domain(tmp_path, (2,) * 60, f"domain{k}")[0] for k in range(3)]
    sources = [(open_domain(folder).source, open_domain(folder).spec) for folder in folders]
    before = psutil.Process().num_fds()
    for source, spec in sources:
        source.read(everything(spec))
    assert psutil.Process().num_fds() <= before + 64
    assert sum(spec.classes for _, spec in sources) > 128


def test_a_file_in_use_is_never_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = open_now(monkeypatch, 1)
    paths = [tmp_path / name for name in "abc"]
    for path in paths:
        path.write_text(path.name)
    versions = [(p.stat().st_size, p.stat().st_mtime_ns) for p in paths]
    with kept_open(paths[0], versions[0]) as first:
        with kept_open(paths[1], versions[1]) as second, kept_open(paths[2], versions[2]) as third:
            assert [os.pread(handle, 9, 0) for handle in (first, second, third)] == [b"a", b"b", b"c"]
        assert os.pread(first, 9, 0) == b"a"
    assert len(files) == 1
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(first)


def test_without_positioned_reads(domain: tuple[Path, Spec], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, spec = domain
    monkeypatch.delattr(os, "pread")
    items = everything(spec)
    source = RecordSource(folder, spec)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(source.read_encoded, [items] * 20))
    assert found == [[images_of(spec, c)[i] for c, i in items]] * 20


def test_pickled_sources_read_the_same(domain: tuple[Path, Spec]) -> None:
    folder, spec = domain
    source = RecordSource(folder, spec)
    source.read([(0, 0)])
    again = pickle.loads(pickle.dumps(source))
    assert again.read_encoded(everything(spec)) == source.read_encoded(everything(spec))
    assert len(pickle.dumps(source)) < 5000


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_while_other_threads_read(domain: tuple[Path, Spec]) -> None:
    folder, spec = domain
    source = RecordSource(folder, spec)
    source.prepare()
    stop = threading.Event()

    def keep_reading() -> None:
        while not stop.is_set():
            source.read_encoded(everything(spec))

    readers = [threading.Thread(target=keep_reading) for _ in range(3)]
    for reader in readers:
        reader.start()
    try:
        context = multiprocessing.get_context("fork")
        expected = source.read_encoded(everything(spec))
        for _ in range(5):
            child = context.Process(target=_read_and_compare, args=(source, everything(spec), expected))
            child.start()
            child.join(30)
            assert child.exitcode == 0
    finally:
        stop.set()
        for reader in readers:
            reader.join()


def _read_and_compare(source: RecordSource, items: list[tuple[int, int]], expected: list[bytes]) -> None:
    os._exit(0 if source.read_encoded(items) == expected else 1)


@pytest.mark.slow
def test_memory_is_flat_over_many_tasks(tmp_path: Path) -> None:
    folder, spec = small_domain(tmp_path, (20,) * 12, "flat")
    source = RecordSource(folder, spec)
    items = everything(spec)
    random = np.random.default_rng(0)

    def tasks(count: int) -> None:
        for _ in range(count):
            source.read_encoded([items[k] for k in random.integers(0, len(items), 10)])

    def growth() -> int:
        before = psutil.Process().memory_info().rss
        tasks(2500)
        return int(psutil.Process().memory_info().rss - before)

    tasks(500)
    # a leak grows every time; what else lives in this process may grow once
    assert any(growth() < 4 * 2**20 for _ in range(3))
