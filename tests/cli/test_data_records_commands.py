"""`fewshift data inspect | convert | cache`, as a shell sees them."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from small_photos import photos, picture, records
from tiny_world import Fewshift

from fewshift.data.records_folder import open_domain
from fewshift.data.records_write import write_domain
from fewshift.data.spec import flat_spec

pytestmark = pytest.mark.usefixtures("own_folders")


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
