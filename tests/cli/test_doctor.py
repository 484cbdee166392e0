"""`fewshift doctor`, as a shell sees it."""

import importlib.metadata
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_world import Fewshift

from fewshift.cli import doctor_checks
from fewshift.data.records_write import write_domain
from fewshift.data.spec import flat_spec
from fewshift.data.suites import data_folder
from fewshift.nets import precision


@pytest.fixture
def doctor(
    fewshift: Fewshift, own_folders: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Fewshift:
    program = tmp_path / "bin" / "npm"  # the real one takes seconds to say its version
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 11.0.0\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))

    return lambda *words: fewshift("doctor", *words)


def checks(doctor: Fewshift, *words: object) -> dict[str, dict[str, Any]]:
    return {check["what"]: check for check in json.loads(doctor(*words, "--json")[1])}


def png(number: int) -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.random.default_rng(number).integers(0, 256, (8, 8), dtype=np.uint8)).save(out, "PNG")
    return out.getvalue()


def test_the_table_names_every_area(doctor: Fewshift) -> None:
    code, out, _ = doctor()
    assert code == 0
    assert "npm 11.0.0 at " in out
    for word in ("machine", "torch", "extras", "data", "cores", "memory", "disk", "python", "npm", "drawn"):
        assert word in out


def test_what_is_missing_has_the_command_that_mends_it(
    doctor: Fewshift, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = doctor_checks._version
    monkeypatch.setattr(doctor_checks, "_version", lambda name: None if name == "matplotlib" else real(name))
    found = checks(doctor)
    assert found["plot"]["state"] == "missing"
    assert found["plot"]["remedy"] == "pip install 'fewshift[plot]'"
    assert "without matplotlib" in found["plot"]["found"]
    assert found["open"]["remedy"] == "fewshift data fetch"
    assert found["md"]["remedy"].startswith("ln -s ")
    assert "pip install 'fewshift[plot]'" in doctor()[1]


def test_every_extra_of_the_package_is_looked_at(doctor: Fewshift) -> None:
    extras = set(importlib.metadata.metadata("fewshift").get_all("Provides-Extra") or ())
    assert extras
    assert extras <= set(checks(doctor))


def test_without_npm_anywhere(doctor: Fewshift, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    found = checks(doctor)
    assert found["npm"]["state"] == "missing"
    assert found["npm"]["remedy"] == "pip install 'fewshift[data]'"


def test_little_disk_is_a_fault(doctor: Fewshift, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        free = 10**6

    monkeypatch.setattr(doctor_checks.shutil, "disk_usage", lambda _: Full)
    code, out, _ = doctor()
    assert code == 1
    assert "make room" in " ".join(out.split())


def test_a_damaged_open_suite_is_one_fault_among_the_other_lines(doctor: Fewshift) -> None:
    spec = data_folder() / "open" / "mnist" / "dataset_spec.json"
    spec.parent.mkdir(parents=True)
    spec.write_text("{")
    found = checks(doctor)
    assert found["open"]["state"] == "broken"
    assert found["open"]["found"].startswith(f"{spec}: this is not valid JSON")
    assert found["drawn"]["state"] == found["cores"]["state"] == "ok"


class TestFolder:
    def records(self, root: Path) -> Path:
        spec = flat_spec("birds", ("a", "b"), (3, 2), {"train": 1, "test": 1})
        write_domain(
            root / "birds", spec, lambda c: [png(10 * c + i) for i in range(spec.images_per_class[c])]
        )
        return root

    def test_records(self, doctor: Fewshift, tmp_path: Path) -> None:
        found = checks(doctor, self.records(tmp_path / "mine"))
        assert found["birds"]["state"] == "ok"
        assert found["birds"]["found"].startswith("1/0/1 classes (train/valid/test), 5 images")

    def test_broken_records_are_a_fault_with_the_command_that_says_more(
        self, doctor: Fewshift, tmp_path: Path
    ) -> None:
        root = self.records(tmp_path / "my records")
        (root / "birds" / "0.tfrecords").unlink()
        code, out, _ = doctor(root, "--json")
        assert code == 1
        (check,) = (check for check in json.loads(out) if check["what"] == "birds")
        assert check["state"] == "broken"
        assert check["remedy"] == f"fewshift data inspect '{root}'"

    def test_a_folder_a_class(self, doctor: Fewshift, tmp_path: Path) -> None:
        for c in range(3):
            (tmp_path / "photos" / str(c)).mkdir(parents=True)
            for i in range(2 + c):
                (tmp_path / "photos" / str(c) / f"{i}.png").write_bytes(png(i))
        found = checks(doctor, tmp_path / "photos")["images"]
        assert found["state"] == "ok"
        assert found["found"] == "3 classes of 2 to 4 images, 9 in all"
        assert found["remedy"].startswith(f"fewshift fit {tmp_path / 'photos'} -o photos.fewshift, or ")
        whole = (tmp_path / "photos" / "2" / "3.png").read_bytes()
        (tmp_path / "photos" / "2" / "3.png").write_bytes(whole[: len(whole) // 2])
        broken = checks(doctor, tmp_path / "photos")["images"]
        assert broken["state"] == "broken"
        assert str(tmp_path / "photos" / "2" / "3.png") in broken["found"]
        for i in range(3):
            (tmp_path / "photos" / "1" / f"{i}.png").unlink()
        code, out, _ = doctor(tmp_path / "photos", "--json")
        assert code == 1
        assert "class 1 has none" in out

    def test_one_image_a_class_is_enough_for_fit(self, doctor: Fewshift, tmp_path: Path) -> None:
        for c in range(2):
            (tmp_path / "my photos" / str(c)).mkdir(parents=True)
            (tmp_path / "my photos" / str(c) / "0.png").write_bytes(png(c))
        code, out, _ = doctor(tmp_path / "my photos", "--json")
        assert code == 0
        (found,) = (check for check in json.loads(out) if check["what"] == "images")
        assert found["found"].endswith(
            "class 0 has one: enough for fit, while evaluate and data convert need two"
        )
        assert found["remedy"] == f"fewshift fit '{tmp_path / 'my photos'}' -o 'my photos.fewshift'"
        (tmp_path / "my photos" / "0" / "0.png").unlink()
        (tmp_path / "my photos" / "0").rmdir()
        assert doctor(tmp_path / "my photos")[0] == 1

    def test_two_classes_with_one_name_are_a_fault_as_for_fit(self, doctor: Fewshift, tmp_path: Path) -> None:
        for name in ("fi", "\ufb01"):  # one letter or two, which look alike
            (tmp_path / "photos" / name).mkdir(parents=True)
            (tmp_path / "photos" / name / "0.png").write_bytes(png(0))
        found = checks(doctor, tmp_path / "photos")["images"]
        assert found["state"] == "broken"
        assert "have one name but for case" in found["found"]

    def test_images_without_class_folders(self, doctor: Fewshift, tmp_path: Path) -> None:
        (tmp_path / "loose").mkdir()
        (tmp_path / "loose" / "0.png").write_bytes(png(0))
        code, out, _ = doctor(tmp_path / "loose", "--json")
        assert code == 1
        assert "1 images and no class folders" in out

    def test_a_folder_of_nothing(self, doctor: Fewshift, tmp_path: Path) -> None:
        (tmp_path / "empty").mkdir()
        assert doctor(tmp_path / "empty")[0] == 1

    def test_no_folder_at_all(self, doctor: Fewshift, tmp_path: Path) -> None:
        code, out, err = doctor(tmp_path / "nowhere")
        assert (code, out) == (2, "")
        assert "nowhere: there is no such folder" in err


@pytest.mark.slow
def test_from_a_shell(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fewshift", "doctor", "--json"], capture_output=True, text=True, check=True
    )
    assert {check["area"] for check in json.loads(done.stdout)} == {"machine", "torch", "extras", "data"}
    assert done.stderr == ""


def test_the_engine_is_named_with_its_reason(doctor: Fewshift) -> None:
    engine = checks(doctor)["engine"]
    assert engine["state"] in ("ok", "missing")
    assert engine["found"].split(":")[0] in ("folded", "graph")
    assert "fastest" in engine["found"]


@pytest.mark.parametrize("has_it", [True, False])
def test_engines_are_called_equal_in_float32_alone(
    doctor: Fewshift, monkeypatch: pytest.MonkeyPatch, has_it: bool
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(precision, "multiplies_bfloat16", lambda: has_it)
    found = checks(doctor)["engine"]["found"]
    assert "in float32 equal to the plain engine" in found
    assert found.endswith("; --precision auto takes bfloat16") == has_it
