"""The cache: tasks equal to the uncached ones, builds that go on after a kill, damage that is found."""

import errno
import json
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fewshift.data.arrays import array_domain
from fewshift.data.cache import (
    CachedSource,
    build_cache,
    open_cached,
    protocol_rule,
    read_info,
    verify_cache,
)
from fewshift.data.cache import build as building
from fewshift.data.domain import Domain, Item, Pixels
from fewshift.data.episodes import episodes
from fewshift.data.pixels import PROTOCOL_84, PROTOCOL_84_ROUNDED, practical, prepare, prepare_planes_into
from fewshift.data.protocol import Protocol
from fewshift.data.records_folder import open_domain
from fewshift.errors import DataError

CLASSES, IMAGES = 8, 12


def domain_of(largest: int, name: str = "mixed", seed: int = 0) -> Domain:
    """Colour and grey images of many sizes up to `largest` a side."""
    random = np.random.default_rng(seed)
    images = []
    for number in range(CLASSES * IMAGES):
        height, width = random.integers(1, largest + 1, 2) if number % 3 else (28, 28)
        image = random.integers(0, 256, (height, width, 3), dtype=np.uint8)
        images.append(image[..., :1].repeat(3, axis=2) if number % 2 else image)
    return array_domain(name, images, np.repeat(np.arange(CLASSES), IMAGES))


def all_items(domain: Domain) -> list[Item]:
    return [(c, i) for c, count in enumerate(domain.spec.images_per_class) for i in range(count)]


class Counting:
    """Counts the images read, and can fail after some."""

    def __init__(self, domain: Domain, fail_after: int = 10**9) -> None:
        self.inner, self.count, self.fail_after = domain.source, 0, fail_after

    def read(self, items: Sequence[Item]) -> list[Pixels]:
        self.count += len(items)
        if self.count > self.fail_after:
            raise KeyboardInterrupt
        return self.inner.read(items)


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "IMAGES_AT_ONCE", 10)


def test_native_sizes_give_the_same_tasks_to_the_bit(tmp_path: Path) -> None:
    domain = domain_of(84)
    build_cache(domain, tmp_path / "cache")
    cached = open_cached(domain, tmp_path / "cache")
    assert verify_cache(tmp_path / "cache", domain).rounded == 0
    assert protocol_rule(cached) == protocol_rule(domain) == PROTOCOL_84
    for rule in (PROTOCOL_84, practical(40, crop=0.9)):
        both = [episodes(d, "test", Protocol(), 5, range(6), rule=rule) for d in (domain, cached)]
        for plain, quick in zip(*both, strict=True):
            assert torch.equal(plain.task.support.images, quick.task.support.images)
            assert torch.equal(plain.query.images, quick.query.images)
            assert torch.equal(plain.query.labels, quick.query.labels)


def test_larger_images_give_the_tasks_of_the_rounded_rule_to_the_bit(tmp_path: Path) -> None:
    domain = domain_of(200)
    build_cache(domain, tmp_path)
    cached = open_cached(domain, tmp_path)
    items = all_items(domain)
    plain, quick = domain.source.read(items), cached.source.read(items)
    assert read_info(tmp_path).rounded == sum(max(image.shape) > 84 for image in plain) > 0
    assert protocol_rule(cached) == PROTOCOL_84_ROUNDED
    assert torch.equal(prepare(plain, PROTOCOL_84_ROUNDED), prepare(quick, PROTOCOL_84_ROUNDED))
    apart = (prepare(plain, PROTOCOL_84) - prepare(quick, PROTOCOL_84)).abs().max() * 127.5
    assert 0 < apart <= 0.5 + 1e-4


def one_shape() -> Domain:
    levels = np.random.default_rng(3).integers(0, 256, (CLASSES * IMAGES, 30, 41, 3), dtype=np.uint8)
    return array_domain("one shape", levels, np.repeat(np.arange(CLASSES), IMAGES))


@pytest.mark.parametrize("domain", [domain_of(84), domain_of(200), one_shape()], ids=lambda d: d.name)
def test_batches_of_one_shape_are_the_images(domain: Domain, tmp_path: Path) -> None:
    build_cache(domain, tmp_path)
    source = open_cached(domain, tmp_path).source
    assert isinstance(source, CachedSource)
    items = [all_items(domain)[place] for place in np.random.default_rng(4).permutation(70)]
    images, seen = source.read(items), []
    for batch in source.read_planes(items):
        assert batch.places == sorted(batch.places)
        seen += batch.places
        for place, levels in zip(batch.places, batch.levels, strict=True):
            assert np.array_equal(levels, images[place].transpose(2, 0, 1))
    assert sorted(seen) == list(range(70))
    for rule in (PROTOCOL_84, PROTOCOL_84_ROUNDED):
        found = np.empty((70, 3, 84, 84), np.float32)
        prepare_planes_into(found, source.read_planes(items), rule)
        assert torch.equal(torch.from_numpy(found), prepare(images, rule))
    assert list(source.read_planes([])) == []
    with pytest.raises(IndexError, match="no such image"):
        list(source.read_planes([(0, IMAGES)]))


def test_grey_takes_a_third(tmp_path: Path) -> None:
    grey = np.random.default_rng(0).integers(0, 256, (4, 20, 30, 1), dtype=np.uint8)
    domain = array_domain("grey", list(grey.repeat(3, axis=3)), [0, 0, 1, 1])
    build_cache(domain, tmp_path)
    assert read_info(tmp_path).size == 4 * 20 * 30
    assert np.array_equal(open_cached(domain, tmp_path).source.read([(1, 0)])[0], grey[2])


def test_a_finished_cache_is_left_alone(tmp_path: Path) -> None:
    domain = domain_of(40)
    build_cache(domain, tmp_path)
    source = Counting(domain)
    build_cache(replace(domain, source=source), tmp_path)
    assert source.count == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "cache.json",
        "offsets.npy",
        "pixels.bin",
        "shapes.npy",
    ]


def test_an_interrupted_build_goes_on(tmp_path: Path) -> None:
    domain = domain_of(60)
    build_cache(domain, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        build_cache(replace(domain, source=Counting(domain, fail_after=45)), tmp_path / "cut")
    with pytest.raises(DataError, match="there is an unfinished cache here: run `fewshift data cache`"):
        open_cached(domain, tmp_path / "cut")
    source = Counting(domain)
    build_cache(replace(domain, source=source), tmp_path / "cut")
    assert source.count == CLASSES * IMAGES - 40
    for name in ("pixels.bin", "shapes.npy", "offsets.npy", "cache.json"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.parametrize("harm", ["torn journal", "lost pixels", "flipped pixels", "extra pixels", "no head"])
def test_a_build_goes_on_from_the_last_sound_part(tmp_path: Path, harm: str) -> None:
    domain = domain_of(60)
    build_cache(domain, tmp_path / "whole")
    cut = tmp_path / "cut"
    with pytest.raises(KeyboardInterrupt):
        build_cache(replace(domain, source=Counting(domain, fail_after=45)), cut)
    journal, pixels = cut / "building.jsonl", cut / "pixels.bin"
    data = pixels.read_bytes()
    if harm == "torn journal":
        journal.write_bytes(journal.read_bytes()[:-20])
    elif harm == "no head":
        journal.write_bytes(journal.read_bytes()[:7])
    elif harm == "lost pixels":
        pixels.write_bytes(data[: len(data) // 2])
    elif harm == "flipped pixels":
        pixels.write_bytes(data[: len(data) // 2] + b"!!!!" + data[len(data) // 2 + 4 :])
    else:
        pixels.write_bytes(data + b"torn write")
    build_cache(domain, cut)
    assert (cut / "pixels.bin").read_bytes() == (tmp_path / "whole" / "pixels.bin").read_bytes()
    verify_cache(cut, domain)


@pytest.mark.slow
def test_a_killed_build_goes_on(tmp_path: Path) -> None:
    script = textwrap.dedent(
        """
        import sys, time
        from pathlib import Path
        sys.path.insert(0, sys.argv[2])
        from dataclasses import replace
        from test_cache import Counting, building, domain_of
        class Slow(Counting):
            def read(self, items):
                time.sleep(0.1)
                return super().read(items)
        building.IMAGES_AT_ONCE = 10
        domain = domain_of(60)
        building.build_cache(replace(domain, source=Slow(domain)), Path(sys.argv[1]))
        """
    )
    command = [sys.executable, "-c", script, str(tmp_path / "cut"), str(Path(__file__).parent)]
    process = subprocess.Popen(command)
    journal = tmp_path / "cut" / "building.jsonl"
    for _ in range(600):
        if journal.exists() and journal.read_bytes().count(b"\n") >= 3:
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    domain = domain_of(60)
    source = Counting(domain)
    build_cache(replace(domain, source=source), tmp_path / "cut")
    assert 0 < source.count <= CLASSES * IMAGES - 20
    build_cache(domain, tmp_path / "whole")
    assert (tmp_path / "cut" / "pixels.bin").read_bytes() == (tmp_path / "whole" / "pixels.bin").read_bytes()


def said(work: Callable[[], object]) -> str:
    with pytest.raises(DataError) as caught:
        work()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_damage_is_found(tmp_path: Path) -> None:
    domain = domain_of(50)
    build_cache(domain, tmp_path)
    pixels = tmp_path / "pixels.bin"
    data = bytearray(pixels.read_bytes())
    data[len(data) // 2] ^= 1
    pixels.write_bytes(data)
    found = said(lambda: verify_cache(tmp_path))
    assert found.startswith(f"{pixels}: bytes ")
    assert found.endswith("do not have their checksum: remove the folder and run `fewshift data cache` again")
    pixels.write_bytes(data[:-1])
    assert f"bytes instead of {len(data):,}" in said(lambda: open_cached(domain, tmp_path))
    pixels.unlink()
    assert "this file of the cache is missing" in said(lambda: open_cached(domain, tmp_path))


def test_a_damaged_index_is_found(tmp_path: Path) -> None:
    domain = domain_of(50)
    build_cache(domain, tmp_path)
    shapes, offsets = np.load(tmp_path / "shapes.npy"), np.load(tmp_path / "offsets.npy")
    offsets[3] += 1
    np.save(tmp_path / "offsets.npy", offsets)
    assert "the offsets do not follow from the shapes" in said(lambda: verify_cache(tmp_path))
    shapes[3, 0] += 1
    np.save(tmp_path / "shapes.npy", shapes)
    assert "the shapes do not have their checksum" in said(lambda: verify_cache(tmp_path))
    (tmp_path / "shapes.npy").write_bytes(b"\x93NUMPY")
    assert "the index of the cache is damaged" in said(lambda: verify_cache(tmp_path))
    (tmp_path / "cache.json").write_text("{}")
    assert "no description of a cache" in said(lambda: read_info(tmp_path))
    (tmp_path / "cache.json").write_text(json.dumps({"format": 0, "sha256": []}))
    assert "remove the folder" in said(lambda: read_info(tmp_path))


def test_a_cache_of_other_data_is_refused(tmp_path: Path) -> None:
    build_cache(domain_of(50), tmp_path)
    other = array_domain("mixed", [np.zeros((4, 4, 3), np.uint8)] * 4, [0, 0, 1, 1])
    assert "this cache was made for another mixed" in said(lambda: open_cached(other, tmp_path))
    assert "this is the cache of other data than mixed" in said(lambda: build_cache(other, tmp_path))
    changed = domain_of(50, seed=1)
    assert "is not the one mixed has now" in said(lambda: verify_cache(tmp_path, changed))


def test_an_unfinished_cache_of_other_data_is_refused(tmp_path: Path) -> None:
    domain = domain_of(60)
    with pytest.raises(KeyboardInterrupt):
        build_cache(replace(domain, source=Counting(domain, fail_after=45)), tmp_path)
    other = array_domain("other", [np.zeros((4, 4, 3), np.uint8)] * 4, [0, 0, 1, 1])
    assert "an unfinished cache of other data than other is here" in said(
        lambda: build_cache(other, tmp_path)
    )


def test_a_full_disk_is_a_sentence_and_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    domain, calls = domain_of(60), []
    real = os.fsync

    def full(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) > 6:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    sentence = said(lambda: build_cache(domain, tmp_path))
    assert "could not be written (No space left on device): mend that and run the same command" in sentence
    monkeypatch.setattr(os, "fsync", real)
    source = Counting(domain)
    build_cache(replace(domain, source=source), tmp_path)
    assert source.count < CLASSES * IMAGES
    verify_cache(tmp_path, domain)


@pytest.mark.skipif(sys.platform == "win32", reason="files cannot be locked there")
def test_two_builds_at_once_are_refused(tmp_path: Path) -> None:
    domain = domain_of(60)
    sentences = []

    class Nested(Counting):
        def read(self, items: Sequence[Item]) -> list[Pixels]:
            if not sentences:
                sentences.append(said(lambda: build_cache(domain, tmp_path)))
            return super().read(items)

    build_cache(replace(domain, source=Nested(domain)), tmp_path, workers=1)
    assert "another process is making this cache: wait for it to end" in sentences[0]
    verify_cache(tmp_path, domain)


def test_no_images_and_no_cache(tmp_path: Path) -> None:
    empty = replace(domain_of(9), spec=replace(domain_of(9).spec, images_per_class=(0,) * CLASSES))
    assert "there are no images to keep" in said(lambda: build_cache(empty, tmp_path))
    assert "there is no cache here" in said(lambda: read_info(tmp_path))


def test_the_source_can_be_given_to_another_process(tmp_path: Path) -> None:
    domain = domain_of(40)
    build_cache(domain, tmp_path)
    source = open_cached(domain, tmp_path).source
    again = pickle.loads(pickle.dumps(source))
    assert isinstance(again, CachedSource)
    items = all_items(domain)[::7]
    assert all(np.array_equal(a, b) for a, b in zip(source.read(items), again.read(items), strict=True))
    assert source.read([]) == []
    for wrong in [(CLASSES, 0), (0, IMAGES), (-1, 0), (0, -1)]:
        with pytest.raises(IndexError, match="no such image"):
            source.read([(0, 0), wrong])


def test_views_stay_valid_when_pages_are_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fewshift.data.cache.source.RELEASE_AFTER", 1)
    domain = domain_of(60)
    build_cache(domain, tmp_path)
    source = open_cached(domain, tmp_path).source
    held = source.read(all_items(domain))
    want = domain.source.read(all_items(domain))
    for _ in range(3):
        source.read(all_items(domain)[:5])
    assert torch.equal(prepare(held, PROTOCOL_84), prepare(want, PROTOCOL_84))


@pytest.mark.slow
@pytest.mark.data
@pytest.mark.parametrize("name", ["mnist", "traffic_sign"])
def test_tasks_of_real_records_are_the_same_to_the_bit(name: str, md_mini: Path, tmp_path: Path) -> None:
    domain = open_domain(md_mini / name)
    build_cache(domain, tmp_path)
    cached = open_cached(domain, tmp_path)
    assert protocol_rule(cached) == PROTOCOL_84
    both = [episodes(d, "test", Protocol(), 2, range(3)) for d in (domain, cached)]
    for plain, quick in zip(*both, strict=True):
        assert torch.equal(plain.task.support.images, quick.task.support.images)
        assert torch.equal(plain.query.images, quick.query.images)


def mapped_memory(path: Path) -> int:
    """Bytes of the file that count as this process's memory now."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    for line in lines:
        if line.endswith(str(path)):
            return next(int(later.split()[1]) * 1024 for later in lines if later.startswith("Rss:"))
    return 0


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_reading_everything_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = np.random.default_rng(0).integers(0, 256, (1200, 84, 84, 3), dtype=np.uint8)
    domain = array_domain("large", images, np.repeat(np.arange(10), 120))
    monkeypatch.setattr(building, "IMAGES_AT_ONCE", 512)
    build_cache(domain, tmp_path)
    source = open_cached(domain, tmp_path).source
    monkeypatch.setattr("fewshift.data.cache.source.RELEASE_AFTER", 2**40)
    for image in source.read(all_items(domain)):
        assert image.max() > 0
    assert mapped_memory(tmp_path / "pixels.bin") > 20 * 2**20
    monkeypatch.setattr("fewshift.data.cache.source.RELEASE_AFTER", 2**20)
    for start in range(0, 1200, 30):
        for image in source.read(all_items(domain)[start : start + 30]):
            assert image.max() > 0
    assert mapped_memory(tmp_path / "pixels.bin") < 8 * 2**20
