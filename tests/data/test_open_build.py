"""Building the open suite's records: resumption, and what lies beside the data."""

import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path

import pytest
from npm_packages import calls, package
from small_records import png

from fewshift.data.open_suite import build
from fewshift.data.open_suite.build import build_open_suite, choose, is_built
from fewshift.data.open_suite.source import Archives, Source
from fewshift.data.records_folder import open_domain
from fewshift.data.spec import flat_spec
from fewshift.data.suite_file import read_suite
from fewshift.errors import DataError, MissingExtra

DRAWN: list[int] = []


def draw(job: tuple[int, int]) -> list[bytes]:
    """Pictures of a class; top level, so that another process can find it."""
    class_id, count = job
    DRAWN.append(class_id)
    return [png(100 * class_id + place) for place in range(count)]


def tiny(name: str, packages: Sequence[str], **more: bool) -> Source:
    spec = flat_spec(name, ("a", "b", "c", "d"), (3, 2, 4, 2), {"train": 2, "valid": 1, "test": 1})

    def opened(archives: Archives):  # type: ignore[no-untyped-def]
        assert all(archives[package].exists() for package in packages)
        return lambda class_id: (class_id, spec.images_per_class[class_id])

    return Source(spec, "seen", tuple(packages), "tests", "MIT", "us", opened, draw, **more)


@pytest.fixture
def suite(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Source]]:
    """Two tiny domains in place of the real ones."""
    pins = {name: package(shelf, name) for name in ("@x/one", "two", "both")}
    made = {
        s.name: s for s in (tiny("first", ["@x/one", "both"]), tiny("second", ["two", "both"], optional=True))
    }
    monkeypatch.setattr(build, "pinned", lambda: pins)
    monkeypatch.setattr(build, "sources", lambda: made)
    DRAWN.clear()
    return made


class TestBuilding:
    def test_a_domain_is_written_described_and_its_packages_removed(
        self, suite: dict[str, Source], tmp_path: Path
    ) -> None:
        root = tmp_path / "data" / "open"
        assert build_open_suite(root, choose()) == ["first"]
        domain = open_domain(root / "first")
        assert domain.spec.images_per_class == (3, 2, 4, 2)
        assert domain.source.read([(2, 3)])[0].shape == (6, 6, 3)
        assert read_suite(root)["first"].role == "seen"
        assert read_suite(root)["first"].provenance.licence == "MIT"
        text = (root / "ATTRIBUTION.md").read_text()
        assert "| @x/one | 1.0.0 | MIT | the makers of @x/one <https://example.org> |" in text
        assert "two" not in text
        assert not (root.parent / "downloads").exists()

    def test_a_second_run_needs_no_npm_and_draws_nothing(
        self, suite: dict[str, Source], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        build_open_suite(tmp_path / "open", choose())
        drawn = len(DRAWN)
        monkeypatch.setenv("PATH", "/nowhere")
        assert build_open_suite(tmp_path / "open", choose()) == []
        assert len(DRAWN) == drawn

    def test_optional_domains_come_when_asked_for(self, suite: dict[str, Source], tmp_path: Path) -> None:
        root = tmp_path / "open"
        build_open_suite(root, choose())
        assert build_open_suite(root, choose(extra=["second"]), keep_downloads=True) == ["second"]
        assert list(read_suite(root)) == ["first", "second"]
        assert sorted(p.name for p in (tmp_path / "downloads").iterdir()) == [
            "both-1.0.0.tgz",
            "two-1.0.0.tgz",
        ]

    def test_unknown_domains_are_named(self, suite: dict[str, Source]) -> None:
        with pytest.raises(
            DataError, match="the open suite has no domain 'third': choose among first, second"
        ):
            choose(only=["third"])
        assert [source.name for source in choose(only=["second"])] == ["second"]

    def test_an_interrupted_run_goes_on(
        self, suite: dict[str, Source], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        root, source = tmp_path / "open", suite["first"]

        def interrupted(job: tuple[int, int]) -> list[bytes]:
            if job[0] == 2:
                raise KeyboardInterrupt
            return draw(job)

        broken = Source(
            **{**{f: getattr(source, f) for f in source.__dataclass_fields__}, "draw": interrupted}
        )
        with pytest.raises(KeyboardInterrupt):
            build_open_suite(root, [broken])
        assert not is_built(source, root)
        assert not list(root.rglob("*.part"))
        assert (tmp_path / "downloads" / "both-1.0.0.tgz").exists()
        DRAWN.clear()
        monkeypatch.setenv("PATH", "/nowhere")
        assert build_open_suite(root, [source]) == ["first"]
        assert DRAWN == [2, 3]

    def test_two_at_once_take_turns(self, suite: dict[str, Source], tmp_path: Path) -> None:
        root, begun, go_on = tmp_path / "open", threading.Event(), threading.Event()

        def slow(job: tuple[int, int]) -> list[bytes]:
            begun.set()
            assert go_on.wait(60)
            assert (tmp_path / "downloads" / "both-1.0.0.tgz").exists(), "another fetch has removed it"
            return draw(job)

        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(build_open_suite, root, [replace(suite["first"], draw=slow)])
            assert begun.wait(60)
            second = pool.submit(build_open_suite, root, [suite["second"]])
            wait([second], timeout=1)
            go_on.set()
            assert (first.result(), second.result()) == (["first"], ["second"])
        assert list(read_suite(root)) == ["first", "second"]
        assert not (tmp_path / "downloads").exists()

    def test_other_class_lists_are_never_mixed_in(self, suite: dict[str, Source], tmp_path: Path) -> None:
        root, source = tmp_path / "open", suite["first"]
        build_open_suite(root, [source])
        spec = flat_spec("first", ("a", "b", "c", "e"), (3, 2, 4, 2), {"train": 2, "valid": 1, "test": 1})
        newer = Source(**{**{f: getattr(source, f) for f in source.__dataclass_fields__}, "spec": spec})
        assert not is_built(newer, root)
        with pytest.raises(DataError, match="other classes or splits of first: remove it"):
            build_open_suite(root, [newer])

    @pytest.mark.slow
    def test_other_processes_draw_the_same(self, suite: dict[str, Source], tmp_path: Path) -> None:
        build_open_suite(tmp_path / "serial" / "open", choose())
        build_open_suite(tmp_path / "spread" / "open", choose(), workers=2)
        for path in sorted((tmp_path / "serial" / "open" / "first").glob("*.tfrecords")):
            assert path.read_bytes() == (tmp_path / "spread" / "open" / "first" / path.name).read_bytes()

    def test_svg_needs_its_extra_before_anything_is_fetched(
        self, suite: dict[str, Source], shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "resvg_py", None)
        with pytest.raises(MissingExtra, match=r"resvg-py.*pip install 'fewshift\[data\]'"):
            build_open_suite(tmp_path / "open", [tiny("drawn", ["two"], draws_svg=True)])
        assert not calls(shelf)
