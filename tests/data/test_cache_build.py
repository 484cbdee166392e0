"""Building a cache: it goes on after a kill, finds damage and refuses other data."""

import errno
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from mixed_images import CLASSES, IMAGES, Counting, domain_of
from refusals import said

from fewshift.data.arrays import array_domain
from fewshift.data.cache import build as building
from fewshift.data.cache import (
    build_cache,
    open_cached,
    read_info,
    verify_cache,
)
from fewshift.data.domain import Item, Pixels
from fewshift.errors import DataError


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "IMAGES_AT_ONCE", 10)


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
        from fewshift.data.cache import build as building
        from mixed_images import Counting, domain_of
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

    build_cache(replace(domain, source=Nested(domain)), tmp_path)
    assert "another process is making this cache: wait for it to end" in sentences[0]
    verify_cache(tmp_path, domain)


def test_no_images_and_no_cache(tmp_path: Path) -> None:
    empty = replace(domain_of(9), spec=replace(domain_of(9).spec, images_per_class=(0,) * CLASSES))
    assert "there are no images to keep" in said(lambda: build_cache(empty, tmp_path))
    assert "there is no cache here" in said(lambda: read_info(tmp_path))
