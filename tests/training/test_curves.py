"""Learning curves: every number of a log, drawn and written for TensorBoard."""

import json
import os
import sys
from pathlib import Path

import pytest
from PIL import Image

from fewshift.errors import FewshiftError
from fewshift.training.curves import Curve, curves_of, draw, smoothed, to_tensorboard, worth_drawing


def run(folder: Path, shift: float = 0.0) -> Path:
    folder.mkdir()
    lines = [{"step": s, "loss": 2 / s + shift, "rate": 0.1, "tasks_per_second": 9.5} for s in (1, 2, 3)]
    lines.append({"step": 3, "validation": 0.7, "accuracy": 0.7, "by_domain": {"a": 0.7}})
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (folder / "log.jsonl").write_text(text + '{"step": 4, "lo')  # torn by a crash
    return folder


def test_every_number_is_a_curve(tmp_path: Path) -> None:
    found = curves_of(run(tmp_path / "a.run"))
    assert found["loss"] == Curve((1, 2, 3), (2.0, 1.0, 2 / 3))
    assert found["validation"] == Curve((3,), (0.7,))
    assert found["validation accuracy"].values == (0.7,)
    assert "step" not in found
    assert worth_drawing([found]) == ["loss"]  # the rate stands still, the rest is one point or the machine's


def test_long_curves_are_smoothed_and_short_ones_are_not() -> None:
    short = Curve((1, 2, 3), (3.0, 1.0, 2.0))
    assert smoothed(short) == short
    long = smoothed(Curve(tuple(range(80)), tuple(float(step % 2) for step in range(80))))
    assert set(long.values) == {0.5}
    assert len(long.steps) == 40


def test_a_picture_of_two_runs(tmp_path: Path) -> None:
    both = {name: curves_of(run(tmp_path / f"{name}.run", 0.1)) for name in ("a", "b")}
    draw(both, tmp_path / "curves.png")
    with Image.open(tmp_path / "curves.png") as picture:
        assert min(picture.size) > 200
        assert len(picture.convert("RGB").getcolors(1 << 20) or ()) > 20
    with pytest.raises(FewshiftError, match=r"curves\.png"):
        draw(both, tmp_path / "curves.nothing")


def test_a_run_has_one_colour_in_every_panel(tmp_path: Path) -> None:
    curve = Curve((1, 2, 3), (3.0, 1.0, 2.0))
    draw({"a": {"loss": curve}, "b": {"accuracy": curve}}, tmp_path / "c.png")
    with Image.open(tmp_path / "c.png") as picture:
        colours = {colour for _, colour in picture.convert("RGB").getcolors(1 << 20) or ()}
    assert {(31, 119, 180), (255, 127, 14)} <= colours  # the first two of matplotlib


def test_tensorboard_reads_what_is_written(tmp_path: Path) -> None:
    loading = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="the tb extra is not installed"
    )
    to_tensorboard({"a": curves_of(run(tmp_path / "a.run"))}, tmp_path / "events")
    events = loading.EventAccumulator(str(tmp_path / "events" / "a")).Reload()
    assert [(e.step, round(e.value, 4)) for e in events.Scalars("loss")] == [(1, 2.0), (2, 1.0), (3, 0.6667)]
    assert "validation/accuracy" in events.Tags()["scalars"]


@pytest.mark.parametrize(
    ("package", "extra"), [("matplotlib.figure", "plot"), ("torch.utils.tensorboard.writer", "tb")]
)
def test_a_missing_extra_is_named(
    package: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    runs = {"a": curves_of(run(tmp_path / "a.run"))}
    with pytest.raises(FewshiftError, match=rf"fewshift\[{extra}\]"):
        draw(runs, tmp_path / "x.png") if extra == "plot" else to_tensorboard(runs, tmp_path)


def test_what_is_no_run_is_answered_by_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(FewshiftError, match=r"NAME\.run"):
        curves_of(tmp_path)
    run(tmp_path / "template")
    with pytest.raises(FewshiftError, match=r"several runs: give some of .*template"):
        curves_of(tmp_path)
    (tmp_path / "log.jsonl").write_text("")
    with pytest.raises(FewshiftError, match="first steps"):
        curves_of(tmp_path)
    (tmp_path / "dsp.kit").write_bytes(b"\x00\x01 no log")
    with pytest.raises(FewshiftError, match=r"dsp\.kit is a kit and keeps no log: give .*NAME\.run"):
        curves_of(tmp_path / "dsp.kit")


def test_a_picture_is_there_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason="the plot extra is not installed")
    runs = {"a": curves_of(run(tmp_path / "a.run"))}
    with pytest.raises(FewshiftError, match=r"curves\.png"):
        draw(runs, tmp_path / "x.html")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FewshiftError, match=r"No space left on device.*make room"):
        draw(runs, tmp_path / "x.png")
    assert [path.name for path in tmp_path.iterdir()] == ["a.run"]
