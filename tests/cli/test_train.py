"""The train commands, as a shell sees them."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import pytest
import torch
from PIL import Image

from fewshift.cli import main
from fewshift.data.records_write import write_domain
from fewshift.data.spec import Spec, flat_spec
from fewshift.data.suite_file import SuiteEntry, write_suite
from fewshift.nets.kit import load_kit
from fewshift.nets.tensor_file import Kind, read_tensors

RUN = Kind("training state", "fewshift-run", version=1)


class Outcome(NamedTuple):
    code: int
    out: str
    err: str


class Fewshift(Protocol):
    def __call__(self, *words: object) -> Outcome: ...


@pytest.fixture
def fewshift(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Fewshift:
    def call(*words: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["fewshift", *map(str, words)])
        with pytest.raises(SystemExit) as left:
            main()
        captured = capsys.readouterr()
        code = left.value.code
        return Outcome(code if isinstance(code, int) else 0, captured.out, captured.err)

    return call


def pictures(spec: Spec, seed: int, class_id: int) -> Iterator[bytes]:
    coarse = np.random.default_rng([seed, class_id]).uniform(0, 255, (4, 4, 3))
    for image in range(spec.images_per_class[class_id]):
        noise = np.random.default_rng([seed, class_id, image]).normal(0, 30, (16, 16, 3))
        pixels = np.clip(coarse.repeat(4, 0).repeat(4, 1) + noise, 0, 255).astype(np.uint8)
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, "png")
        yield file.getvalue()


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seen domains and an unseen one, of 16-pixel pictures."""
    root = tmp_path_factory.mktemp("records")
    roles = {"squares": "seen", "tiles": "seen", "other": "unseen"}
    for seed, name in enumerate(roles):
        counts = (
            {"train": 10, "valid": 5, "test": 5} if name != "other" else {"train": 0, "valid": 0, "test": 6}
        )
        total = sum(counts.values())
        spec = flat_spec(name, tuple(f"{name}{c}" for c in range(total)), (8,) * total, counts)
        write_domain(root / name, spec, lambda c, spec=spec, seed=seed: pictures(spec, seed, c))
    write_suite(root, {name: SuiteEntry(role) for name, role in roles.items()})
    return root


BACKBONE = (
    "--preset",
    "quick",
    "--width",
    4,
    "--image-size",
    16,
    "--updates",
    3,
    "--batch",
    8,
    "--validation-tasks",
    1,
    "--device",
    "cpu",
)


@pytest.fixture(scope="module")
def backbone(records: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    kit = tmp_path_factory.mktemp("kits") / "backbone.kit"
    words = ["train", "backbone", "--records", records, "--out", kit, *BACKBONE, "--hold-out", "0.4"]
    process = start(*words)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    return kit


def meta(stage: str, kit: Path, records: Path, out: Path, *more: object) -> tuple[object, ...]:
    usual = (
        "--preset",
        "quick",
        "--updates",
        2,
        "--tasks-per-update",
        2,
        "--validation-tasks",
        1,
        "--device",
        "cpu",
    )
    return ("train", stage, "--kit", kit, "--records", records, "--out", out, *usual, *more)


def test_three_commands_make_a_whole_kit(
    fewshift: Fewshift, backbone: Path, records: Path, tmp_path: Path
) -> None:
    first = load_kit(backbone)
    assert first.images.size == 16
    assert first.info["backbone"]["domains"] == ["squares", "tiles"]
    assert first.info["backbone"]["classes"] == {"squares": 6, "tiles": 6}
    done = fewshift(*meta("preconditioners", backbone, records, tmp_path / "dsp.kit", "--design", "low_rank"))
    assert done.code == 0, done.err
    assert "trained preconditioners of squares, tiles; wrote" in done.err
    done = fewshift(*meta("classifier", tmp_path / "dsp.kit", records, tmp_path / "tsp.kit", "--width", 8))
    assert done.code == 0, done.err
    kit = load_kit(tmp_path / "tsp.kit")
    assert kit.domains == ("squares", "tiles")
    assert kit.backbone.fingerprint() == first.backbone.fingerprint()
    assert kit.preconditioners is not None
    assert kit.preconditioners.design == "low_rank"
    assert kit.classifier is not None
    assert kit.classifier.width == 8
    assert set(kit.info) == {"backbone", "preconditioners", "classifier"}
    assert kit.info["classifier"]["settings"]["auxiliary"] == 0.1
    lines = [json.loads(line) for line in (tmp_path / "tsp.run" / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "loss" in line] == [1, 2]


def test_held_out_classes_are_those_the_backbone_did_not_see(
    fewshift: Fewshift, backbone: Path, records: Path, tmp_path: Path
) -> None:
    done = fewshift(
        *meta("preconditioners", backbone, records, tmp_path / "p", "--classes", "held-out", "--updates", 1),
        *("--tasks-per-update", 1),
    )
    assert done.code == 2  # four classes are held out of each domain, and a task needs five
    assert "a task needs 5 classes and the split has 4" in done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "by one of --records, --folder and --suite"),
        (("--records", "R", "--domains", "nobody"), "nobody"),
        (("--records", "R", "--domains", "other"), "other has no TRAIN classes"),
        (("--records", "R", "--teacher", "squares"), "give DOMAIN=RUN"),
        (("--records", "R", "--teacher", "squares=nowhere"), "there is no training state"),
        (("--records", "R", "--hold-out", "1.5"), "give a number between 0 and 1"),
        (("--records", "R", "--device", "tpu"), "--device tpu cannot be used here"),
    ],
)
def test_mistakes_are_one_sentence(
    fewshift: Fewshift, records: Path, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    given = [records if word == "R" else word for word in words]
    done = fewshift("train", "backbone", "--out", tmp_path / "x.kit", "--preset", "quick", *given)
    assert done.code == 2
    assert said in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert not (tmp_path / "x.kit").exists()


def test_a_kit_without_preconditioners_has_nothing_to_blend(
    fewshift: Fewshift, backbone: Path, records: Path, tmp_path: Path
) -> None:
    done = fewshift(*meta("classifier", backbone, records, tmp_path / "c.kit"))
    assert done.code == 2
    assert "has no preconditioners to blend: run train preconditioners first" in done.err


def test_runs_are_not_overwritten_and_other_settings_are_refused(
    fewshift: Fewshift, backbone: Path, records: Path, tmp_path: Path
) -> None:
    command = meta("preconditioners", backbone, records, tmp_path / "p.kit", "--updates", 1)
    assert fewshift(*command).code == 0
    again = fewshift(*command)
    assert again.code == 2
    assert "add --resume to go on with it" in again.err
    other = fewshift(*command, "--resume", "--rate", "0.5")
    assert other.code == 2
    assert "its settings.rate is 0.03, this run's is 0.5" in other.err
    assert fewshift(*command, "--resume").code == 0


def start(*words: object) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "fewshift", *map(str, words)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)


def wait_for_state(folder: Path, process: subprocess.Popen[str]) -> None:
    for _ in range(600):
        if (folder / "last.safetensors").exists():
            return
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        time.sleep(0.05)
    raise AssertionError("no state was saved")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_run_goes_on_to_the_same_bits(
    fewshift: Fewshift, backbone: Path, records: Path, tmp_path: Path, number: int
) -> None:
    def command(name: str, *more: object) -> tuple[object, ...]:
        options = ("--tasks-per-update", 1, "--updates", 6, "--save-every", 2, *more)
        return meta("preconditioners", backbone, records, tmp_path / f"{name}.kit", *options)

    process = start(*command("stopped"))
    wait_for_state(tmp_path / "stopped.run", process)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert "its state is saved in" in said
        assert "repeat the command with --resume" in said
    else:
        log = tmp_path / "stopped.run" / "log.jsonl"
        with log.open("a") as file:
            file.write('{"step": 99, "loss": 1.0}\n{"st')
    assert not (tmp_path / "stopped.kit").exists()
    assert fewshift(*command("stopped", "--resume")).code == 0
    assert fewshift(*command("whole")).code == 0
    states = [
        read_tensors(tmp_path / f"{name}.run" / "last.safetensors", RUN)[1] for name in ("stopped", "whole")
    ]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[1])
    kits = [load_kit(tmp_path / f"{name}.kit").preconditioners for name in ("stopped", "whole")]
    assert all(torch.equal(kits[0].roots[site], root) for site, root in kits[1].roots.items())  # type: ignore[union-attr]
    lines = [json.loads(line) for line in (tmp_path / "stopped.run" / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "loss" in line] == list(range(1, 7))


def test_distillation_from_finished_runs(fewshift: Fewshift, records: Path, tmp_path: Path) -> None:
    teacher = (
        "train",
        "backbone",
        "--records",
        records,
        "--domains",
        "tiles",
        "--out",
        tmp_path / "tiles",
        *BACKBONE,
    )
    assert fewshift(*teacher).code == 0
    assert (tmp_path / "tiles" / "backbone.kit").exists()
    student = ("train", "backbone", "--records", records, "--out", tmp_path / "url.kit", *BACKBONE)
    done = fewshift(*student, "--teacher", f"tiles={tmp_path / 'tiles'}")
    assert done.code == 0, done.err
    assert load_kit(tmp_path / "url.kit").info["backbone"]["teachers"] == ["tiles"]
    first = json.loads((tmp_path / "url.run" / "log.jsonl").read_text().splitlines()[0])
    assert first["distillation"] > 0


@pytest.mark.parametrize("stage", ["backbone", "preconditioners", "classifier"])
def test_every_help_has_an_example(fewshift: Fewshift, stage: str) -> None:
    done = fewshift("train", stage, "--help")
    assert done.code == 0
    assert f"fewshift train {stage}" in done.out
