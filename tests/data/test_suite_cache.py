"""Pixel caches of suites: used where exact, made anew where outdated, never put over something else."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from small_records import png, small_domain

from fewshift.data.cache import CachedSource
from fewshift.data.records import RecordSource
from fewshift.data.records_folder import open_domain
from fewshift.data.suite_cache import cache_of, cache_state, keep_pixels
from fewshift.data.suites import open_suite
from fewshift.errors import DataError

pytestmark = pytest.mark.usefixtures("own_cache")


class TestCaches:
    def test_a_current_exact_cache_is_used_and_gives_the_same_pixels(self, tmp_path: Path) -> None:
        folder, spec = small_domain(tmp_path / "mine")
        plain = open_domain(folder)
        assert keep_pixels(plain, cache_of(folder))
        assert not keep_pixels(plain, cache_of(folder))
        (cached,) = open_suite(tmp_path / "mine")
        assert isinstance(cached.source, CachedSource)
        items = [(c, i) for c in range(spec.classes) for i in range(spec.images_per_class[c])]
        pairs = zip(cached.source.read(items), plain.source.read(items), strict=True)
        assert all(np.array_equal(a, b) for a, b in pairs)
        assert isinstance(open_suite(tmp_path / "mine", cached=False).domains[0].source, RecordSource)

    def test_a_domain_that_a_suite_renames_is_read_from_its_cache(self, tmp_path: Path) -> None:
        folder, spec = small_domain(tmp_path / "mine")
        keep_pixels(open_domain(folder), cache_of(folder))
        suite = {"name": "own", "domains": {"other": {"records": f"mine/{folder.name}", "role": "seen"}}}
        (tmp_path / "own.json").write_text(json.dumps(suite))
        (cached,) = open_suite(tmp_path / "own.json")
        (plain,) = open_suite(tmp_path / "own.json", cached=False)
        assert (cached.name, cached.role, cached.spec) == ("other", "seen", plain.spec)
        assert isinstance(cached.source, CachedSource)
        items = [(spec.classes - 1, 0), (0, 0)]
        pairs = zip(cached.source.read(items), plain.source.read(items), strict=True)
        assert all(np.array_equal(a, b) for a, b in pairs)

    def test_records_made_anew_are_not_read_from_old_pixels(self, tmp_path: Path) -> None:
        folder, _ = small_domain(tmp_path / "mine")
        keep_pixels(open_domain(folder), cache_of(folder))
        assert cache_state(open_domain(folder), cache_of(folder)) == "exact"
        os.utime(folder / "1.tfrecords", ns=(1, 1))
        assert cache_state(open_domain(folder), cache_of(folder)) == "outdated"
        assert isinstance(open_suite(tmp_path / "mine").domains[0].source, RecordSource)
        assert keep_pixels(open_domain(folder), cache_of(folder))
        assert cache_state(open_domain(folder), cache_of(folder)) == "exact"

    def test_a_rounded_cache_is_left_aside(self, tmp_path: Path) -> None:
        from fewshift.data.records_write import write_domain
        from fewshift.data.spec import flat_spec

        spec = flat_spec("large", ("a",), (2,), {"test": 1})
        write_domain(tmp_path / "mine" / "large", spec, lambda c: [png(i, size=90) for i in range(2)])
        domain = open_domain(tmp_path / "mine" / "large")
        keep_pixels(domain, cache_of(tmp_path / "mine" / "large"))
        assert cache_state(domain, cache_of(tmp_path / "mine" / "large")) == "rounded"
        assert isinstance(open_suite(tmp_path / "mine").domains[0].source, RecordSource)

    def test_an_unfinished_cache_is_finished_and_never_read(self, tmp_path: Path) -> None:
        folder, _ = small_domain(tmp_path / "mine")
        keep_pixels(open_domain(folder), cache_of(folder))
        (cache_of(folder) / "cache.json").unlink()
        assert cache_state(open_domain(folder), cache_of(folder)) == "unfinished"
        assert isinstance(open_suite(tmp_path / "mine").domains[0].source, RecordSource)
        assert keep_pixels(open_domain(folder), cache_of(folder))
        assert cache_state(open_domain(folder), cache_of(folder)) == "exact"

    def test_a_folder_of_something_else_is_not_overwritten(self, tmp_path: Path) -> None:
        folder, _ = small_domain(tmp_path / "mine")
        (tmp_path / "precious").mkdir()
        (tmp_path / "precious" / "thesis.txt").write_text("all of it")
        with pytest.raises(DataError, match="precious: it holds something else than a cache"):
            keep_pixels(open_domain(folder), tmp_path / "precious")
        assert (tmp_path / "precious" / "thesis.txt").read_text() == "all of it"
        place = tmp_path / "precious" / "thesis.txt" / "cache"
        with pytest.raises(
            DataError, match=r"cache: it cannot be written .*: choose another folder with --to"
        ):
            keep_pixels(open_domain(folder), place)
