"""The cache: tasks equal to the uncached ones, in little memory and in other processes."""

import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from mixed_images import CLASSES, IMAGES, all_items, domain_of

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
from fewshift.data.domain import Domain
from fewshift.data.episodes import episodes
from fewshift.data.pixels import PROTOCOL_84, PROTOCOL_84_ROUNDED, practical, prepare, prepare_planes_into
from fewshift.data.protocol import Protocol
from fewshift.data.records_folder import open_domain


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
