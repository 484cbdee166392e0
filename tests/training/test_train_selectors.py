"""URT's training: features once, then tasks; and what the learner of tasks does for all."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from patterns import PROTOCOL, WATCH, tiny_backbone
from torch import Tensor

from fewshift.core.centroids import unit
from fewshift.core.selection import extractor_centres
from fewshift.core.urt import attention
from fewshift.data.resident import ResidentDomain
from fewshift.errors import FewshiftError
from fewshift.nets.backbone import Backbone
from fewshift.nets.extractors import Extractors
from fewshift.training import journal
from fewshift.training.checkpoint import load_checkpoint
from fewshift.training.distributed import ALONE
from fewshift.training.loop import LAST, LOG
from fewshift.training.selector import SelectorSettings, train_selector, with_features
from fewshift.training.task_learner import Judged, TaskLearner, TaskSettings
from fewshift.training.tasks import ResidentTasks
from fewshift.types import Address, Episode

SETTINGS = SelectorSettings(updates=6, period=6, hidden=8, validation_tasks=2, rate=0.05)


@pytest.fixture(scope="module")
def extractors() -> Extractors:
    """Two networks; the second one is blind."""
    seeing = tiny_backbone()
    blind = {n: torch.zeros_like(t) if n == "conv.weight" else t for n, t in seeing.frozen.items()}
    return Extractors(("seeing", "blind"), (seeing, replace(seeing, frozen=blind)))


def test_features_are_gathered_like_images(
    residents: dict[str, ResidentDomain], extractors: Extractors, tasks: ResidentTasks
) -> None:
    held = ResidentTasks({n: with_features(d, extractors) for n, d in residents.items()}, PROTOCOL)
    learner = TaskLearner("x", {"w": torch.zeros(1)}, lambda e: None, (), held, SETTINGS, ALONE)  # type: ignore[arg-type, return-value]
    for address in learner.addresses(0):
        images, features = tasks.episode(address), held.episode(address)
        expected = unit(extractors.backbones[0].embed(images.task.support.images))
        torch.testing.assert_close(features.task.support.images[:, 0], expected)
        assert features.query.images.shape == (len(images.query.labels), 2, 8)


def train(
    residents: dict[str, ResidentDomain],
    extractors: Extractors,
    folder: Path,
    resume: bool = False,
    **changes: object,
) -> dict[str, Tensor]:
    settings = replace(SETTINGS, **changes)  # type: ignore[arg-type]
    found = train_selector(
        extractors, residents, settings, folder, protocol=PROTOCOL, watch=WATCH, resume=resume
    )
    assert found.part.settings == {"domains": ["seeing", "blind"]}
    return dict(found.part.tensors)


def test_a_run_in_pieces_equals_a_run_in_one(
    residents: dict[str, ResidentDomain], extractors: Extractors, tmp_path: Path
) -> None:
    whole = train(residents, extractors, tmp_path / "whole", validation_tasks=0)
    train(residents, extractors, tmp_path / "pieces", updates=2, validation_tasks=0)
    pieces = train(residents, extractors, tmp_path / "pieces", resume=True, validation_tasks=0)
    assert all(torch.equal(whole[name], pieces[name]) for name in whole)
    states = [load_checkpoint(tmp_path / name / LAST).tensors for name in ("whole", "pieces")]
    assert any("exp_avg_sq" in name for name in states[0])
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    lines = list(journal.read(tmp_path / "pieces" / LOG))
    wanted = {"loss", "accuracy", "cross_entropy", "apart", "rate", "skipped", "tasks_per_second"}
    assert [line["step"] for line in lines if wanted <= line.keys()] == [1, 2, 3, 4, 5, 6]


def test_heads_come_to_take_different_extractors(
    residents: dict[str, ResidentDomain], extractors: Extractors, tmp_path: Path
) -> None:
    learned = train(residents, extractors, tmp_path, updates=60, period=60)
    (check,) = (line for line in journal.read(tmp_path / LOG) if "validation" in line)
    assert set(check["accuracy_by_domain"]) == {"red", "grey"}
    task = ResidentTasks({n: with_features(d, extractors) for n, d in residents.items()}, PROTOCOL)
    support = task.episode(Address(7, "red", "valid", 0)).task.support
    mix = attention(learned, extractor_centres(support.images, support.labels, 5))
    assert (mix.max(dim=0).values > 0.9).all()
    assert len(set(mix.argmax(dim=0).tolist())) == 2


def test_other_extractors_are_another_run(
    residents: dict[str, ResidentDomain], extractors: Extractors, tmp_path: Path
) -> None:
    train(residents, extractors, tmp_path, updates=1, validation_tasks=0)
    turned = replace(extractors, backbones=extractors.backbones[::-1])
    with pytest.raises(FewshiftError, match="its extractors is"):
        train(residents, turned, tmp_path, resume=True)


def constant_judge(weights: dict[str, Tensor], bad: set[int]) -> tuple[list[str], object]:
    met: list[str] = []

    def judge(episode: Episode) -> Judged:
        met.append(episode.domain)
        factor = float("nan") if len(met) - 1 in bad else 1.0
        logits = torch.nn.functional.one_hot(episode.query.labels, episode.task.way).float()
        return Judged(weights["w"].sum() * factor, logits, {})

    return met, judge


def test_tasks_that_are_not_finite_are_left_out_and_counted(tasks: ResidentTasks) -> None:
    weights = {"w": torch.ones(2, requires_grad=True)}
    _, judge = constant_judge(weights, {1})
    settings = TaskSettings(updates=1, tasks_per_update=3, rate=0.1)
    learner = TaskLearner("x", weights, judge, (), tasks, settings, ALONE)  # type: ignore[arg-type]
    found = learner.update(0)
    assert float(found["skipped"]) == 1
    assert float(found["loss"]) == 2
    assert float(found["accuracy"]) == 1
    torch.testing.assert_close(weights["w"].detach(), torch.full((2,), 0.9))


def test_an_update_is_of_the_sum_over_its_tasks(tasks: ResidentTasks) -> None:
    """Adam would not show it, so plain descent takes its place."""
    settings = replace(SETTINGS, tasks_per_update=3, rate=0.5, period=None)
    weight = torch.zeros(1, requires_grad=True)

    def judge(episode: Episode) -> Judged:
        return Judged((2 * weight).sum(), torch.zeros(len(episode.query.labels), episode.task.way), {})

    learner = TaskLearner("x", {"w": weight}, judge, (), tasks, settings, ALONE)
    learner.optimizer = torch.optim.SGD([weight], lr=1.0)  # type: ignore[assignment]
    learner.update(0)
    assert weight.item() == -0.5 * 3 * 2


def test_a_favourite_gives_half_of_the_tasks(tasks: ResidentTasks) -> None:
    weights = {"w": torch.ones(2, requires_grad=True)}
    settings = TaskSettings(updates=1, tasks_per_update=1, rate=0.1, favourite="grey")
    learner = TaskLearner("x", weights, lambda e: None, (), tasks, settings, ALONE)  # type: ignore[arg-type, return-value]
    drawn = [learner.addresses(step)[0] for step in range(200)]
    assert 75 < sum(address.domain == "grey" for address in drawn) < 125
    assert len({address.index for address in drawn}) == 200
    learner.settings = replace(settings, favourite="nobody's")
    assert [learner.addresses(step)[0].domain for step in range(4)] == ["red", "grey", "red", "grey"]


@pytest.mark.parametrize(("change", "said"), [({"updates": 0}, "updates is 0"), ({"rate": 0.0}, "rate is 0")])
def test_settings_check_themselves(change: dict[str, object], said: str) -> None:
    with pytest.raises(FewshiftError, match=said):
        replace(SETTINGS, **change)  # type: ignore[arg-type]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_a_selector_learns_on_a_gpu(
    residents: dict[str, ResidentDomain], extractors: Extractors, tmp_path: Path
) -> None:
    there = replace(extractors, backbones=tuple(_on_gpu(b) for b in extractors.backbones))
    found = train({n: d.to("cuda") for n, d in residents.items()}, there, tmp_path)
    assert all(tensor.isfinite().all() for tensor in found.values())


def _on_gpu(backbone: Backbone) -> Backbone:
    frozen = {name: tensor.cuda() for name, tensor in backbone.frozen.items()}
    return replace(backbone.to("cuda"), frozen=frozen)
