"""The train commands, as a shell sees them."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
import typer
from tiny_world import Fewshift, options, shell, started, wait_until

from fewshift.cli.train_options import Run
from fewshift.cli.train_shared import session_of
from fewshift.nets.kit import load_kit
from fewshift.nets.tensor_file import Kind, read_tensors
from fewshift.training.distributed import Team
from fewshift.training.interruption import Interrupted

RUN = Kind("training state", "fewshift-run", version=1)


BACKBONE = options(
    preset="quick", width=4, image_size=16, updates=3, batch=8, validation_tasks=1, device="cpu"
)
USUAL = options(preset="quick", updates=2, tasks_per_update=2, validation_tasks=1, device="cpu")


@pytest.fixture(scope="module")
def backbone(records: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    kit = tmp_path_factory.mktemp("kits") / "backbone.kit"
    done = shell("train", "backbone", "--records", records, "--out", kit, *BACKBONE, "--hold-out", "0.4")
    assert done.code == 0, done.err
    return kit


def meta(stage: str, kit: Path, records: Path, out: Path, *more: object) -> tuple[object, ...]:
    return ("train", stage, "--kit", kit, "--records", records, "--out", out, *USUAL, *more)


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
        ((), "by one of --records and --suite"),
        (("--records", "R", "--domains", "nobody"), "nobody"),
        (("--records", "R", "--domains", "far"), "far has no TRAIN classes"),
        (("--records", "R", "--teacher", "squares"), "give DOMAIN=RUN"),
        (("--records", "R", "--teacher", "squares=nowhere"), "there is no training state"),
        (("--records", "R", "--hold-out", "1.5"), "give a number between 0 and 1"),
        (("--records", "R", "--never-mirrored", "tilse"), "--never-mirrored tilse: it is not among"),
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


def test_a_seed_below_zero_is_refused(fewshift: Fewshift, records: Path, tmp_path: Path) -> None:
    words = ("--records", records, "--preset", "quick", "--seed", -1)
    done = fewshift("train", "backbone", "--out", tmp_path / "x.kit", *words)
    assert done.code == 2
    assert "--seed" in done.err


def test_a_kit_without_preconditioners_has_nothing_to_blend(
    fewshift: Fewshift, backbone: Path, records: Path, tmp_path: Path
) -> None:
    done = fewshift(*meta("classifier", backbone, records, tmp_path / "c.kit"))
    assert done.code == 2
    assert "has no preconditioners to blend: run train preconditioners first" in done.err


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (("--rank", 2), "--rank is for the designs low_rank and bounded, not for gram"),
        (("--common-start",), "--common-start is for starting values: add --train-starts"),
        (("--start-rate", 0.1), "--start-rate is for starting values: add --train-starts"),
    ],
)
def test_an_option_that_would_change_nothing_is_refused(
    fewshift: Fewshift, backbone: Path, records: Path, tmp_path: Path, option: tuple[object, ...], said: str
) -> None:
    done = fewshift(*meta("preconditioners", backbone, records, tmp_path / "p.kit", *option))
    assert done.code == 2
    assert said in done.err


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


def six_updates(backbone: Path, records: Path, out: Path, *more: object) -> tuple[object, ...]:
    options = ("--tasks-per-update", 1, "--updates", 6, "--save-every", 2, *more)
    return meta("preconditioners", backbone, records, out, *options)


@pytest.fixture(scope="module")
def whole(backbone: Path, records: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing stopped."""
    kit = tmp_path_factory.mktemp("whole") / "whole.kit"
    assert shell(*six_updates(backbone, records, kit)).code == 0
    return kit


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_run_goes_on_to_the_same_bits(
    fewshift: Fewshift, backbone: Path, records: Path, whole: Path, tmp_path: Path, number: int
) -> None:
    stopped = tmp_path / "stopped.kit"
    with started(*six_updates(backbone, records, stopped)) as process:
        wait_until((tmp_path / "stopped.run" / "last.safetensors").exists, process)
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
    log = tmp_path / "stopped.run" / "log.jsonl"
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert "its state is saved in" in said
        assert "repeat the command with --resume" in said
    else:
        with log.open("a") as file:
            file.write('{"step": 99, "loss": 1.0}\n{"st')
    assert not stopped.exists()
    assert fewshift(*six_updates(backbone, records, stopped, "--resume")).code == 0
    ours, theirs = (
        read_tensors(kit.with_suffix(".run") / "last.safetensors", RUN)[1] for kit in (stopped, whole)
    )
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    kits = [load_kit(kit).preconditioners for kit in (stopped, whole)]
    assert all(torch.equal(kits[0].roots[site], root) for site, root in kits[1].roots.items())  # type: ignore[union-attr]
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [line["step"] for line in lines if "loss" in line] == list(range(1, 7))


@pytest.mark.parametrize("rank", [0, 1])
def test_of_several_processes_one_says_that_they_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], rank: int
) -> None:
    @contextmanager
    def joined(device: torch.device) -> Iterator[tuple[Team, torch.device]]:
        yield Team(rank, 2), device

    monkeypatch.setattr("fewshift.cli.train_shared.joined", joined)
    with pytest.raises(typer.Exit) as left, session_of(Run(device="cpu")):
        raise Interrupted("backbone", 3, tmp_path)
    assert left.value.exit_code == 130
    assert ("stopped after step 3" in capsys.readouterr().err) == (rank == 0)


def test_distillation_from_finished_runs(fewshift: Fewshift, records: Path, tmp_path: Path) -> None:
    common = ("train", "backbone", "--records", records, *BACKBONE)
    assert fewshift(*common, "--domains", "tiles", "--out", tmp_path / "tiles").code == 0
    assert (tmp_path / "tiles" / "backbone.kit").exists()
    done = fewshift(*common, "--out", tmp_path / "url.kit", "--teacher", f"tiles={tmp_path / 'tiles'}")
    assert done.code == 0, done.err
    assert load_kit(tmp_path / "url.kit").info["backbone"]["teachers"] == ["tiles"]
    first = json.loads((tmp_path / "url.run" / "log.jsonl").read_text().splitlines()[0])
    assert first["distillation"] > 0


@pytest.mark.parametrize("stage", ["backbone", "preconditioners", "classifier"])
def test_every_help_has_an_example(fewshift: Fewshift, stage: str) -> None:
    done = fewshift("train", stage, "--help")
    assert done.code == 0
    assert f"fewshift train {stage}" in done.out
