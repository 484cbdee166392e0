"""Algorithm 1: what moves, what does not, and that a run goes on to the same bits."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from patterns import WATCH, preconditioner_settings, resnet_backbone, tiny_backbone
from torch import Tensor

from fewshift.core.metagrad import MetaGradient
from fewshift.core.precond import DESIGNS
from fewshift.errors import FewshiftError
from fewshift.nets.backbone import Backbone
from fewshift.training import journal
from fewshift.training.checkpoint import load_checkpoint
from fewshift.training.distributed import ALONE
from fewshift.training.fastest import best_meta_gradients
from fewshift.training.loop import LAST, LOG
from fewshift.training.metagradients import (
    FoldedOneByOne,
    Job,
    MetaGradients,
    OneByOne,
)
from fewshift.training.preconditioner_learner import PreconditionerLearner
from fewshift.training.preconditioners import train_preconditioners
from fewshift.training.settings import InnerLevel, PreconditionerSettings
from fewshift.training.tasks import ResidentTasks
from fewshift.types import Address, Episode


def learner_of(
    backbone: Backbone,
    tasks: ResidentTasks,
    settings: PreconditionerSettings,
    meta_gradients: MetaGradients | None = None,
) -> PreconditionerLearner:
    return PreconditionerLearner(
        backbone, tasks, settings, meta_gradients or best_meta_gradients(backbone), ALONE
    )


def copied(learner: PreconditionerLearner) -> dict[str, dict[str, Tensor]]:
    return {d: {s: root.clone() for s, root in roots.items()} for d, roots in learner.roots.items()}


def test_the_outer_loss_goes_down(tasks: ResidentTasks) -> None:
    """On the very same tasks, with the preconditioners before and after."""
    settings = preconditioner_settings(tasks_per_update=2, rate=0.05, period=1000, normalise=True)
    learner = learner_of(resnet_backbone(), tasks, settings)
    before = float(learner.update(0)["loss"])
    for step in range(1, 8):
        learner.update(step)
    assert float(learner.update(0)["loss"]) < before - 0.01


def test_a_task_moves_its_own_domain_only(backbone: Backbone, tasks: ResidentTasks) -> None:
    learner = learner_of(backbone, tasks, preconditioner_settings(tasks_per_update=1))
    for step, (mover, other) in enumerate([("red", "grey"), ("grey", "red"), ("red", "grey")]):
        before = copied(learner)
        learner.update(step)
        assert all(torch.equal(before[other][site], root) for site, root in learner.roots[other].items())
        assert all(not torch.equal(before[mover][site], root) for site, root in learner.roots[mover].items())


def test_the_step_is_plain_momentum_descent_on_the_mean(backbone: Backbone, tasks: ResidentTasks) -> None:
    settings = preconditioner_settings(tasks_per_update=4, rate=0.1, weight_decay=0.01, period=7)
    learner = learner_of(backbone, tasks, settings)
    start, found = copied(learner), list(_gradients(learner, step=0))
    learner.update(0)
    for domain in ("red", "grey"):
        for site, root in start[domain].items():
            pull = sum(g.preconditioner[site] for d, g in found if d == domain) / 4
            gradient = root @ (pull + pull.mT) + 0.01 * root
            torch.testing.assert_close(
                learner.roots[domain][site], root - 0.1 * gradient, rtol=1e-5, atol=1e-7
            )


def _gradients(learner: PreconditionerLearner, step: int) -> Iterator[tuple[str, MetaGradient]]:
    from fewshift.training.tasks import task_addresses

    settings = learner.settings
    for address in task_addresses(
        "preconditioners",
        settings.seed,
        learner.tasks.domains,
        "train",
        step,
        settings.tasks_per_update,
        "stratified",
    ):
        job = Job(learner.tasks.episode(address), learner._preconditioner(address.domain), learner.start)
        (found,) = OneByOne(learner.backbone)([job], settings.inner, False)
        yield address.domain, found


@pytest.mark.parametrize("design", sorted(DESIGNS))
@pytest.mark.parametrize("order", [1, 2])
def test_every_design_and_order_takes_a_finite_step(
    backbone: Backbone, tasks: ResidentTasks, design: str, order: int
) -> None:
    settings = preconditioner_settings(
        design=design, tasks_per_update=1, inner=InnerLevel(steps=2, order=order)
    )
    learner = learner_of(backbone, tasks, settings)
    before = copied(learner)
    metrics = learner.update(0)
    assert float(metrics["skipped"]) == 0
    assert torch.isfinite(torch.as_tensor(metrics["largest_eigenvalue"]))
    moved = any(not torch.equal(before["red"][site], root) for site, root in learner.roots["red"].items())
    assert moved == (design != "identity")


def test_folded_meta_gradients_equal_the_plain_ones(tasks: ResidentTasks) -> None:
    backbone = resnet_backbone()
    learner = learner_of(backbone, tasks, preconditioner_settings())
    jobs = [
        Job(tasks.episode(Address(0, domain, "train", 0)), learner._preconditioner(domain), learner.start)
        for domain in tasks.domains
    ]
    for order in (1, 2):
        inner = InnerLevel(steps=3, order=order)
        plain = list(OneByOne(backbone)(jobs, inner, True))
        folded = list(FoldedOneByOne(backbone)(jobs, inner, True))
        for one, other in zip(plain, folded, strict=True):
            torch.testing.assert_close(one.loss, other.loss, rtol=1e-4, atol=1e-6)
            assert one.accuracy is not None
            assert other.accuracy is not None
            for site, pull in one.preconditioner.items():
                scale = float(pull.abs().max())
                torch.testing.assert_close(pull, other.preconditioner[site], rtol=1e-3, atol=1e-3 * scale)


def test_normalised_gradients_have_length_one(backbone: Backbone, tasks: ResidentTasks) -> None:
    settings = preconditioner_settings(normalise=True, rate=0.1, weight_decay=0.0)
    learner = learner_of(backbone, tasks, settings)
    before = copied(learner)
    learner.update(0)
    for domain, roots in learner.roots.items():
        for site, root in roots.items():
            assert float((root - before[domain][site]).norm()) == pytest.approx(0.1, rel=1e-3)


def test_starting_values_can_be_learned(backbone: Backbone, tasks: ResidentTasks, tmp_path: Path) -> None:
    settings = preconditioner_settings(
        train_starts=True, tasks_per_update=1, inner=InnerLevel(steps=1, order=2)
    )
    learner = learner_of(backbone, tasks, settings)
    learner.update(0)
    assert all(torch.equal(learner.starts["grey"][s], v) for s, v in learner.start.items())
    assert not torch.equal(learner.starts["red"]["last"], learner.start["last"])
    found = train_preconditioners(backbone, tasks, settings, tmp_path, watch=WATCH)
    assert found.starts is not None
    assert found.starts.domains == ("red", "grey")
    assert not torch.equal(found.starts.of("red")["last"], learner.start["last"])
    assert (
        train_preconditioners(
            backbone, tasks, preconditioner_settings(updates=1), tmp_path / "other", watch=WATCH
        ).starts
        is None
    )


def test_a_common_start_is_moved_by_every_domain(
    backbone: Backbone, tasks: ResidentTasks, tmp_path: Path
) -> None:
    settings = preconditioner_settings(train_starts=True, common_start=True, tasks_per_update=1, updates=2)
    learner = learner_of(backbone, tasks, settings)
    learner.update(0)  # a task of the first domain
    moved, own = learner._start_of("grey")["last"], learner.starts["grey"]["last"]
    assert torch.count_nonzero(own) == 0
    assert not torch.equal(moved, learner.start["last"])
    found = train_preconditioners(backbone, tasks, settings, tmp_path, watch=WATCH).starts
    assert found is not None
    assert found.base is not None
    assert not torch.equal(found.of("red")["last"], found.base["last"])
    assert not torch.equal(found.base["last"], learner.start["last"])


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


@pytest.mark.slow
def test_memory_is_flat_over_a_hundred_steps(backbone: Backbone, tasks: ResidentTasks) -> None:
    """As many tensors live after step 105 as after step 5: no task and no gradient is left behind."""
    settings = preconditioner_settings(tasks_per_update=1, inner=InnerLevel(steps=1), updates=200)
    learner = learner_of(backbone, tasks, settings)

    def living(steps: range) -> tuple[int, int]:
        for step in steps:
            learner.update(step)
        gc.collect()
        tensors = [thing for thing in gc.get_objects() if issubclass(type(thing), Tensor)]
        return len(tensors), sum(t.numel() for t in tensors)

    before = living(range(5))
    assert living(range(5, 105)) == before


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"updates": 0}, "updates is 0"),
        ({"rate": 0.0}, "the rate is 0"),
        ({"design": "none"}, "no preconditioner design 'none'"),
    ],
)
def test_settings_check_themselves(change: dict[str, object], said: str) -> None:
    with pytest.raises(FewshiftError, match=said):
        preconditioner_settings(**change)
    with pytest.raises(FewshiftError, match="order 1 or 2"):
        InnerLevel(order=3)  # type: ignore[arg-type]


def test_validation_uses_the_tasks_own_domain(backbone: Backbone, tasks: ResidentTasks) -> None:
    """With one domain's P blown up beyond use, only that domain's accuracy falls."""
    settings = preconditioner_settings(validation_tasks=6, validation_steps=3)
    learner = learner_of(backbone, tasks, settings)
    before = learner.validate()
    for root in learner.roots["grey"].values():
        root.mul_(1e4)
    after = learner.validate()
    assert before is not None
    assert after is not None
    ours, theirs = before.details["accuracy_by_domain"], after.details["accuracy_by_domain"]
    assert ours["red"] == theirs["red"]
    assert theirs["grey"] < ours["grey"]


def test_tasks_come_from_the_split_that_was_asked_for(backbone: Backbone, tasks: ResidentTasks) -> None:
    seen: list[Episode] = []

    def watching(jobs: Iterable[Job], inner: InnerLevel, starts: bool) -> Iterator[MetaGradient]:
        for job in jobs:
            seen.append(job.episode)
            yield from OneByOne(backbone)([job], inner, starts)

    learner_of(backbone, tasks, preconditioner_settings(split="valid"), watching).update(0)
    assert [episode.address.split for episode in seen] == ["valid", "valid"]
    assert all(c in range(10, 15) for episode in seen for c in episode.class_ids)
