"""Whole runs of Algorithm 1: tasks left out, runs in pieces, what is refused and what is logged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from patterns import WATCH, preconditioner_settings, tiny_backbone
from preconditioner_learners import learner_of

from fewshift.core.metagrad import MetaGradient
from fewshift.errors import FewshiftError
from fewshift.nets.backbone import Backbone
from fewshift.training import journal
from fewshift.training.checkpoint import load_checkpoint
from fewshift.training.fastest import best_meta_gradients
from fewshift.training.loop import LAST, LOG
from fewshift.training.metagradients import Job, OneByOne
from fewshift.training.preconditioners import train_preconditioners
from fewshift.training.settings import InnerLevel
from fewshift.training.tasks import ResidentTasks


class Poisoned:
    """Some tasks give numbers that are not finite."""

    def __init__(self, backbone: Backbone, bad: set[int], value: float) -> None:
        self.inside, self.bad, self.value, self.count = best_meta_gradients(backbone), bad, value, 0

    def __call__(self, jobs: Iterable[Job], inner: InnerLevel, starts: bool) -> Iterator[MetaGradient]:
        for found in self.inside(jobs, inner, starts):
            if self.count in self.bad:
                pulls = {s: p.clone() for s, p in found.preconditioner.items()}
                pulls["last"][0, 0] = self.value
                found = replace(found, preconditioner=pulls)
            self.count += 1
            yield found


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_tasks_that_are_not_finite_are_left_out_and_counted(
    backbone: Backbone, tasks: ResidentTasks, tmp_path: Path, value: float
) -> None:
    settings = preconditioner_settings(updates=3, tasks_per_update=2)
    poisoned = Poisoned(backbone, {1, 4}, value)
    found = train_preconditioners(backbone, tasks, settings, tmp_path, watch=WATCH, meta_gradients=poisoned)
    assert found.outcome.skipped == 2
    assert all(root.isfinite().all() for root in found.preconditioners.roots.values())
    skipped = [line["skipped"] for line in journal.read(tmp_path / LOG) if "skipped" in line]
    assert skipped == [1, 0, 1]


def test_left_out_tasks_change_nothing_else(backbone: Backbone, tasks: ResidentTasks) -> None:
    """The mean is over the tasks that count: one good task of two moves its domain as if it were alone."""
    both = learner_of(
        backbone, tasks, preconditioner_settings(tasks_per_update=2), Poisoned(backbone, {1}, float("nan"))
    )
    alone = learner_of(backbone, tasks, preconditioner_settings(tasks_per_update=1))
    both.update(0)
    alone.update(0)
    for site, root in alone.roots["red"].items():
        torch.testing.assert_close(both.roots["red"][site], root, rtol=1e-6, atol=1e-8)


def test_a_step_without_any_usable_task_ends_the_run(
    backbone: Backbone, tasks: ResidentTasks, tmp_path: Path
) -> None:
    poisoned = Poisoned(backbone, {2, 3}, float("nan"))
    with pytest.raises(FewshiftError, match="not finite at step 2"):
        train_preconditioners(
            backbone, tasks, preconditioner_settings(), tmp_path, watch=WATCH, meta_gradients=poisoned
        )


def test_a_run_in_pieces_equals_a_run_in_one(
    backbone: Backbone, tasks: ResidentTasks, tmp_path: Path
) -> None:
    settings = preconditioner_settings(train_starts=True)
    train_preconditioners(backbone, tasks, settings, tmp_path / "whole", watch=WATCH)
    first = replace(settings, updates=2)
    train_preconditioners(backbone, tasks, first, tmp_path / "pieces", watch=WATCH)
    train_preconditioners(backbone, tasks, settings, tmp_path / "pieces", watch=WATCH, resume=True)
    whole, pieces = (load_checkpoint(tmp_path / name / LAST).tensors for name in ("whole", "pieces"))
    assert whole.keys() == pieces.keys()
    assert any("momentum" in name for name in whole)
    assert all(torch.equal(whole[name], pieces[name]) for name in whole)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rate": 0.2}, "settings.rate is 0.1, this run's is 0.2"),
        ({"design": "cholesky"}, "settings.design is gram, this run's is cholesky"),
        ({"inner": InnerLevel(steps=3)}, "settings.inner.steps is 2, this run's is 3"),
    ],
)
def test_other_settings_are_refused(
    backbone: Backbone, tasks: ResidentTasks, tmp_path: Path, change: dict[str, object], said: str
) -> None:
    settings = preconditioner_settings(updates=1, tasks_per_update=1, validation_tasks=0)
    train_preconditioners(backbone, tasks, settings, tmp_path, watch=WATCH)
    with pytest.raises(FewshiftError, match=said):
        train_preconditioners(
            backbone, tasks, replace(settings, updates=2, **change), tmp_path, watch=WATCH, resume=True
        )


@dataclass(frozen=True)
class Rounded(OneByOne):
    precision: str = "tf32"


def test_another_precision_is_refused(backbone: Backbone, tasks: ResidentTasks, tmp_path: Path) -> None:
    settings = preconditioner_settings(updates=1, tasks_per_update=1, validation_tasks=0)
    usual, short = Rounded(backbone), Rounded(backbone, "float16")
    train_preconditioners(backbone, tasks, settings, tmp_path, watch=WATCH, meta_gradients=usual)
    more = replace(settings, updates=2)
    with pytest.raises(FewshiftError, match="precision is None, this run's is float16"):
        train_preconditioners(backbone, tasks, more, tmp_path, watch=WATCH, resume=True, meta_gradients=short)
    train_preconditioners(backbone, tasks, more, tmp_path, watch=WATCH, resume=True, meta_gradients=usual)


def test_another_backbone_is_refused(tasks: ResidentTasks, tmp_path: Path) -> None:
    backbone = tiny_backbone()
    settings = preconditioner_settings(updates=1, tasks_per_update=1, validation_tasks=0)
    train_preconditioners(backbone, tasks, settings, tmp_path, watch=WATCH)
    backbone.frozen["conv.weight"].add_(0.01)
    with pytest.raises(FewshiftError, match="its backbone is"):
        train_preconditioners(backbone, tasks, settings, tmp_path, watch=WATCH, resume=True)


def test_what_is_logged(backbone: Backbone, tasks: ResidentTasks, tmp_path: Path) -> None:
    train_preconditioners(backbone, tasks, preconditioner_settings(), tmp_path, watch=WATCH)
    steps = [line for line in journal.read(tmp_path / LOG) if "loss" in line]
    wanted = {
        "loss",
        "accuracy",
        "skipped",
        "pull_norm",
        "root_norm",
        "rate",
        "tasks_per_second",
        "memory_mib",
    }
    assert all(wanted <= line.keys() for line in steps)
    assert ["largest_eigenvalue" in line for line in steps] == [True, False, True, False]
    assert steps[0]["largest_eigenvalue"] >= 1
    checks = [line for line in journal.read(tmp_path / LOG) if "validation" in line]
    assert [set(line["accuracy_by_domain"]) for line in checks] == [{"red", "grey"}]


def test_the_share_that_is_not_positive_definite_is_logged_where_nothing_promises_it(
    backbone: Backbone, tasks: ResidentTasks, tmp_path: Path
) -> None:
    for scale, share in ((1.0, 0.0), (-1.0, 1.0)):
        settings = preconditioner_settings(updates=1, validation_tasks=0, design="free", scale=scale)
        folder = tmp_path / str(scale)
        train_preconditioners(backbone, tasks, settings, folder, watch=WATCH)
        (line,) = journal.read(folder / LOG)
        assert line["non_pd_rate"] == share
        assert (line["largest_eigenvalue"] > 0) == (scale > 0)
