"""The loop that all runs share, with a learner so small that its numbers can be known."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fewshift.errors import FewshiftError
from fewshift.training import journal
from fewshift.training.checkpoint import (
    Checkpoint,
    load_checkpoint,
    save_checkpoint,
)
from fewshift.training.distributed import Team
from fewshift.training.interruption import Interrupted
from fewshift.training.loop import BEST, LAST, LOG, Diverged, Outcome, Validation, Watch, run

IDENTITY = {"settings": {"rate": 0.1}, "data": "abc"}
WATCH = Watch(log_every=3, checkpoint_every=4, validate_every=5)


class Walker:
    """A number that follows the steps; its score rises until step 10 and falls afterwards."""

    kind, unit, units, device = "backbone", "images", 6, torch.device("cpu")

    def __init__(self, at_step: Mapping[int, Callable[[], Any]] | None = None) -> None:
        self.value = torch.zeros(3, dtype=torch.float64)
        self.at_step = at_step or {}

    def update(self, step: int) -> dict[str, Tensor | float]:
        found = self.at_step.get(step, lambda: None)()
        self.value = self.value * 0.9 + torch.sin(torch.tensor(float(step), dtype=torch.float64))
        loss = self.value.sum() if found is None else torch.tensor(found)
        return {"loss": loss, "skipped": torch.tensor(float(step % 2)), "rate": 0.1}

    def validate(self) -> Validation | None:
        self.checked = [*getattr(self, "checked", []), float(self.value[0])]
        return Validation(-abs(len(self.checked) - 2.0), {"by": {"a": 1.0}})

    def tensors(self) -> dict[str, Tensor]:
        return {"value": self.value, "count": torch.tensor(len(getattr(self, "checked", [])))}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        self.value = tensors["value"].clone()
        self.checked = [0.0] * int(tensors["count"])


def walk(folder: Path, updates: int = 20, learner: Walker | None = None, **options: Any) -> Outcome:
    given = {"identity": IDENTITY, "updates": updates, "watch": WATCH, **options}
    return run(learner or Walker(), folder, **given)


def steps_logged(folder: Path) -> list[int]:
    return [line["step"] for line in journal.read(folder / LOG) if "loss" in line]


def test_every_step_has_one_line_and_the_best_validation_is_kept(tmp_path: Path) -> None:
    outcome = walk(tmp_path)
    assert steps_logged(tmp_path) == list(range(1, 21))
    lines = list(journal.read(tmp_path / LOG))
    assert {"loss", "skipped", "rate", "images_per_second", "memory_mib"} <= lines[0].keys()
    assert [line["step"] for line in lines if "validation" in line] == [5, 10, 15, 20]
    assert outcome.best is not None
    assert (outcome.step, outcome.skipped, outcome.best.step) == (20, 10, 10)
    assert load_checkpoint(tmp_path / BEST).step == 10
    assert load_checkpoint(tmp_path / LAST).step == 20
    assert not [p for p in tmp_path.iterdir() if p.name not in {LOG, LAST, BEST}]


@pytest.mark.parametrize("stops", [[4], [8, 12], [5, 10, 15]])
def test_a_run_in_pieces_equals_a_run_in_one(tmp_path: Path, stops: list[int]) -> None:
    walk(tmp_path / "whole")
    for updates in [*stops, 20]:
        outcome = walk(tmp_path / "pieces", updates, resume=True)
    whole, pieces = (load_checkpoint(tmp_path / name / LAST) for name in ("whole", "pieces"))
    assert torch.equal(whole.tensors["value"], pieces.tensors["value"])
    assert steps_logged(tmp_path / "pieces") == list(range(1, 21))
    assert outcome.skipped == 10


def test_a_finished_run_is_left_alone(tmp_path: Path) -> None:
    walk(tmp_path)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    assert walk(tmp_path, resume=True).step == 20
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_an_existing_run_is_not_overwritten(tmp_path: Path) -> None:
    walk(tmp_path, 4)
    with pytest.raises(FewshiftError, match="already holds a run at step 4: add --resume"):
        walk(tmp_path)


@pytest.mark.parametrize(
    ("identity", "said"),
    [
        ({"settings": {"rate": 0.2}, "data": "abc"}, "its settings.rate is 0.1, this run's is 0.2"),
        ({"settings": {"rate": 0.1}, "data": "x"}, "its data is abc, this run's is x"),
        (
            {"settings": {"rate": 0.1, "new": [1]}, "data": "abc"},
            r"its settings.new is None, this run's is \[1\]",
        ),
    ],
)
def test_another_run_is_refused(tmp_path: Path, identity: dict[str, Any], said: str) -> None:
    walk(tmp_path, 4)
    with pytest.raises(FewshiftError, match=said):
        walk(tmp_path, resume=True, identity=identity)


def test_a_state_of_another_command_is_refused(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / LAST, Checkpoint("classifier", IDENTITY, 3, {}))
    with pytest.raises(FewshiftError, match="state of train classifier, not of train backbone"):
        walk(tmp_path, resume=True)


@pytest.mark.parametrize("content", [b"", b"not tensors", b"\x08\x00\x00\x00\x00\x00\x00\x00{}      "])
def test_a_damaged_state_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / LAST).write_bytes(content)
    with pytest.raises(FewshiftError, match=r"last\.safetensors"):
        walk(tmp_path, resume=True)


def test_lines_after_the_state_and_torn_ones_are_cut(tmp_path: Path) -> None:
    walk(tmp_path, 8)
    log = tmp_path / LOG
    whole = log.read_bytes()
    log.write_bytes(whole + b'{"step": 9, "loss": 1.0}\n{"step": 10, "lo')
    walk(tmp_path, 20, resume=True)
    assert steps_logged(tmp_path) == list(range(1, 21))
    assert log.read_bytes().startswith(whole)
    for line in log.read_text().splitlines():
        json.loads(line)


@pytest.mark.parametrize("step", [7, 20])  # the last one, too: a command may have more runs than this one
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_saves_and_tells_how_to_go_on(tmp_path: Path, number: int, step: int) -> None:
    learner = Walker({step - 1: lambda: os.kill(os.getpid(), number)})
    before = signal.getsignal(number)
    with pytest.raises(Interrupted, match=rf"stopped after step {step}; its state is saved in .* --resume"):
        walk(tmp_path / "stopped", learner=learner)
    assert signal.getsignal(number) is before
    assert load_checkpoint(tmp_path / "stopped" / LAST).step == step
    walk(tmp_path / "stopped", resume=True)
    walk(tmp_path / "whole")
    stopped, whole = (load_checkpoint(tmp_path / name / LAST) for name in ("stopped", "whole"))
    assert torch.equal(stopped.tensors["value"], whole.tensors["value"])
    assert steps_logged(tmp_path / "stopped") == list(range(1, 21))


def test_no_process_ends_before_an_interrupted_state_is_saved(tmp_path: Path) -> None:
    saved: list[int] = []

    class Waiting(Team):
        def wait(self) -> None:
            saved.extend(load_checkpoint(path).step for path in tmp_path.glob(LAST))

    learner = Walker({6: lambda: os.kill(os.getpid(), signal.SIGTERM)})
    with pytest.raises(Interrupted):
        walk(tmp_path, learner=learner, team=Waiting())
    assert saved == [7]


def test_a_second_interruption_does_not_wait(tmp_path: Path) -> None:
    def twice() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt) as caught:
        walk(tmp_path, learner=Walker({6: twice}))
    assert not isinstance(caught.value, Interrupted)
    assert load_checkpoint(tmp_path / LAST).step == 5


def test_a_score_that_is_no_number_is_no_best_one(tmp_path: Path) -> None:
    class Blind(Walker):
        def validate(self) -> Validation | None:
            found = super().validate()
            assert found is not None
            return found if len(self.checked) == 3 else Validation(float("nan"), {"entropy": float("nan")})

    outcome = walk(tmp_path, learner=Blind())
    assert outcome.best is not None
    assert outcome.best.step == 15
    scores = [line["validation"] for line in journal.read(tmp_path / LOG) if "validation" in line]
    assert scores == [None, None, -1.0, None]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_loss_that_is_not_finite_ends_the_run_and_keeps_the_last_state(
    tmp_path: Path, value: float
) -> None:
    with pytest.raises(FewshiftError, match="not finite at step 7: start again with a lower rate"):
        walk(tmp_path, learner=Walker({6: lambda: value}))
    assert load_checkpoint(tmp_path / LAST).step == 5
    assert [line["loss"] for line in journal.read(tmp_path / LOG) if line["step"] == 7] == [None]


class Breaking(Walker):
    """Loses its value in one update, whose loss is still a number, as a step that is too long does."""

    def __init__(self, step: int, then: Callable[[], Any] = lambda: None) -> None:
        super().__init__({step - 1: then})
        self.breaks = step

    def update(self, step: int) -> dict[str, Tensor | float]:
        metrics = super().update(step)
        if step + 1 == self.breaks:
            self.value = self.value / 0
        return metrics


@pytest.mark.parametrize(("step", "kept"), [(20, 16), (15, 12), (16, 15)])  # the last, validated, only saved
@pytest.mark.parametrize("keep_last", [False, True])
def test_what_is_not_finite_after_a_step_is_not_kept(
    tmp_path: Path, step: int, kept: int, keep_last: bool
) -> None:
    watch = Watch(log_every=3, checkpoint_every=4, validate_every=5, keep_last=keep_last)
    with pytest.raises(Diverged, match=f"what is learned is not finite after step {step}: start again with"):
        walk(tmp_path, learner=Breaking(step), watch=watch)
    assert load_checkpoint(tmp_path / LAST).step == kept
    for name in (LAST, BEST):
        assert load_checkpoint(tmp_path / name).tensors["value"].isfinite().all()


def test_an_interruption_keeps_nothing_that_is_not_finite(tmp_path: Path) -> None:
    with pytest.raises(Diverged, match="not finite after step 7"):
        walk(tmp_path, learner=Breaking(7, lambda: os.kill(os.getpid(), signal.SIGINT)))
    assert load_checkpoint(tmp_path / LAST).step == 5


def test_patience_ends_a_run_and_a_resumed_one_at_once(tmp_path: Path) -> None:
    impatient = Watch(log_every=3, checkpoint_every=4, validate_every=5, patience=1)
    assert walk(tmp_path, 100, watch=impatient).step == 15
    assert walk(tmp_path, 100, watch=impatient, resume=True).step == 15


class Blind(Walker):
    def validate(self) -> None:
        return None


def test_without_validation_the_last_state_counts(tmp_path: Path) -> None:
    outcome = walk(tmp_path, learner=Blind())
    assert outcome.best is None
    assert outcome.checkpoint().step == 20


def test_what_a_killed_run_left_is_removed(tmp_path: Path) -> None:
    walk(tmp_path, 8)
    (tmp_path / ".last.safetensors.77.part").write_bytes(b"half")
    walk(tmp_path, 20, resume=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == [BEST, LAST, LOG]
    (tmp_path / LAST).unlink()  # killed between its first validation and its first saved state
    assert walk(tmp_path, 3, learner=Blind()).checkpoint().step == 3


def test_progress_is_told(tmp_path: Path) -> None:
    told: list[tuple[str, int | None]] = []

    def track(items: Iterable[Any], /, *, label: str, total: int | None = None) -> Iterator[Any]:
        told.append((label, total))
        return iter(items)

    walk(tmp_path, 8)
    walk(tmp_path, 20, resume=True, track=track)
    assert told == [("train backbone", 12)]


def test_a_full_disk_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    walk(tmp_path, 4)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FewshiftError, match="No space left on device"):
        walk(tmp_path, resume=True)
    monkeypatch.undo()
    assert load_checkpoint(tmp_path / LAST).step == 4
    assert walk(tmp_path, resume=True).step == 20


def test_the_folder_must_be_one(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FewshiftError, match="cannot be a run's folder"):
        walk(tmp_path / "file")


def test_no_pickle_is_written(tmp_path: Path) -> None:
    walk(tmp_path)
    for path in tmp_path.iterdir():
        content = path.read_bytes()
        assert b"\x80\x02" not in content[:2]
        assert not content.startswith(b"PK")


@pytest.mark.parametrize("field", ["log_every", "checkpoint_every", "validate_every", "patience"])
def test_watches_check_themselves(field: str) -> None:
    with pytest.raises(FewshiftError, match=f"{field} is 0"):
        Watch(**{field: 0})


def test_the_last_state_counts_where_it_is_asked_for(tmp_path: Path) -> None:
    best = walk(tmp_path / "best")
    assert best.checkpoint().step == 10
    watch = Watch(log_every=3, checkpoint_every=4, validate_every=5, keep_last=True)
    last = walk(tmp_path / "last", watch=watch)
    assert last.best is not None
    assert (last.best.step, last.checkpoint().step) == (10, 20)
    assert load_checkpoint(last.folder / BEST).step == 10
