"""Algorithm 1: what moves, what does not, and that a run goes on to the same bits."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import torch
from patterns import WATCH, preconditioner_settings, resnet_backbone
from preconditioner_learners import copied, learner_of
from torch import Tensor

from fewshift.core.metagrad import MetaGradient
from fewshift.core.precond import DESIGNS
from fewshift.core.updates import Preconditioned
from fewshift.errors import FewshiftError
from fewshift.nets.backbone import Backbone
from fewshift.nets.bundled import find_kit
from fewshift.training import preconditioner_learner
from fewshift.training.metagradients import (
    FoldedOneByOne,
    Job,
    OneByOne,
)
from fewshift.training.preconditioner_learner import PreconditionerLearner
from fewshift.training.preconditioners import train_preconditioners
from fewshift.training.settings import InnerLevel
from fewshift.training.tasks import ResidentTasks
from fewshift.types import Address, Episode


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
        job = Job(
            learner.tasks.episode(address),
            learner._preconditioners([address.domain])[address.domain],
            learner.start,
        )
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
        Job(
            tasks.episode(Address(0, domain, "train", 0)),
            learner._preconditioners([domain])[domain],
            learner.start,
        )
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


def test_meta_gradients_in_bfloat16_point_where_exact_ones_do(tasks: ResidentTasks) -> None:
    """Of a trained network: the sums of a random one nearly cancel, and rounding shows."""
    backbone = find_kit("narrow", torch.device("cpu"))[1].backbone
    episode = tasks.episode(Address(0, tasks.domains[0], "train", 0))
    identities = {site: torch.eye(len(value)) for site, value in backbone.init().items()}
    jobs = [Job(episode, identities, backbone.init())]
    ways = (OneByOne(backbone), FoldedOneByOne(backbone, "bfloat16"))
    plain, short = (next(iter(way(jobs, InnerLevel(steps=3), True))) for way in ways)
    torch.testing.assert_close(short.loss, plain.loss, rtol=0.02, atol=0)
    for site, pull in plain.preconditioner.items():
        other = short.preconditioner[site]
        assert other.dtype == torch.float32
        assert not torch.equal(other, pull)
        assert torch.cosine_similarity(other.flatten(), pull.flatten(), dim=0) > 0.98, site


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
    assert not torch.equal(found.starts.values["last"][0], learner.start["last"])
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
    assert not torch.equal(found.values["last"][0], found.base["last"])
    assert not torch.equal(found.base["last"], learner.start["last"])


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
        ({"start_rate": -1.0}, "the rate of the starting values is -1"),
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


def test_validation_descends_at_the_test_rates_of_its_sites(
    backbone: Backbone, tasks: ResidentTasks, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = preconditioner_settings(validation_tasks=1, validation_steps=3, validation_rates=(0.05, 0.3))
    asked: list[tuple[dict[str, float], int]] = []

    def noting(engine: object, episode: object, start: object, rule: Preconditioned, steps: int) -> Tensor:
        asked.append((dict(rule.rates), steps))
        return torch.ones(())

    monkeypatch.setattr(preconditioner_learner, "adapted_accuracy", noting)
    learner_of(backbone, tasks, settings).validate()
    *adapters, last = backbone.sites
    assert asked == [({**dict.fromkeys(adapters, 0.05), last: 0.3}, 3)] * len(tasks.domains)


def test_tasks_come_from_the_split_that_was_asked_for(backbone: Backbone, tasks: ResidentTasks) -> None:
    seen: list[Episode] = []

    def watching(jobs: Iterable[Job], inner: InnerLevel, starts: bool) -> Iterator[MetaGradient]:
        for job in jobs:
            seen.append(job.episode)
            yield from OneByOne(backbone)([job], inner, starts)

    learner_of(backbone, tasks, preconditioner_settings(split="valid"), watching).update(0)
    assert [episode.address.split for episode in seen] == ["valid", "valid"]
    assert all(c in range(10, 15) for episode in seen for c in episode.class_ids)
