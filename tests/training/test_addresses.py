"""Which tasks and images a step reads is a function of the seed and the step."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from patterns import PROTOCOL, backbone_settings, preconditioner_settings

from fewshift.data.resident import ResidentDomain
from fewshift.errors import DataError
from fewshift.nets.backbone import Backbone
from fewshift.training.backbone import train_backbone
from fewshift.training.batches import image_stream
from fewshift.training.loop import Watch
from fewshift.training.preconditioners import train_preconditioners
from fewshift.training.schedule import cosine_restarts
from fewshift.training.tasks import ResidentTasks, task_addresses, validation_addresses
from fewshift.types import Address

EIGHT = tuple("abcdefgh")


def addresses(step: int, domains: tuple[str, ...] = EIGHT, count: int = 16, **changes: str) -> list[Address]:
    options = {"stage": "s", "sampling": "stratified", **changes}
    return task_addresses(options["stage"], 0, domains, "train", step, count, options["sampling"])  # type: ignore[arg-type]


def test_stratified_steps_have_two_tasks_of_each_of_eight_domains() -> None:
    for step in range(5):
        assert Counter(a.domain for a in addresses(step)) == dict.fromkeys(EIGHT, 2)


@pytest.mark.parametrize("domains", [1, 3, 5, 7])
def test_uneven_numbers_differ_by_one(domains: int) -> None:
    for step in range(6):
        counts = Counter(a.domain for a in addresses(step, EIGHT[:domains]))
        assert len(counts) == domains
        assert max(counts.values()) - min(counts.values()) <= 1


def test_more_domains_than_tasks_take_turns() -> None:
    seen = Counter(a.domain for step in range(8) for a in addresses(step, count=3))
    assert seen == dict.fromkeys(EIGHT, 3)


@pytest.mark.parametrize("sampling", ["stratified", "uniform"])
def test_no_task_comes_twice_and_each_step_is_repeatable(sampling: str) -> None:
    run = [a for step in range(50) for a in addresses(step, sampling=sampling)]
    assert len(set(run)) == len(run) == 800
    assert addresses(17, sampling=sampling) == run[17 * 16 : 18 * 16]


def test_uniform_steps_draw_their_domains() -> None:
    counts = Counter(a.domain for step in range(200) for a in addresses(step, sampling="uniform"))
    assert set(counts) == set(EIGHT)
    assert all(300 < n < 500 for n in counts.values())
    assert any(
        Counter(a.domain for a in addresses(s, sampling="uniform")) != dict.fromkeys(EIGHT, 2)
        for s in range(3)
    )


def test_stages_do_not_share_tasks(tasks: ResidentTasks) -> None:
    first, second = addresses(0), addresses(0, stage="t")
    assert not set(first) & set(second)
    checked = validation_addresses("s", 0, tasks, "train", 5)
    assert not {a.seed for a in checked} & {a.seed for a in first}
    assert Counter(a.domain for a in checked) == {"red": 5, "grey": 5}


def test_domains_without_classes_are_not_validated(tasks: ResidentTasks) -> None:
    class NoValid(ResidentTasks):
        def has(self, domain: str, split: str) -> bool:
            return domain == "red"

    assert {a.domain for a in validation_addresses("s", 0, NoValid(tasks.residents), "valid", 3)} == {"red"}


def test_too_few_classes_for_a_validation_are_told_before_training(
    residents: dict[str, ResidentDomain], backbone: Backbone, tmp_path: Path
) -> None:
    spec = residents["red"].spec
    few = replace(spec, splits={**spec.splits, "valid": range(10, 12), "test": range(12, 20)})
    domains = {**residents, "red": replace(residents["red"], spec=few)}
    tasks = ResidentTasks(domains, PROTOCOL)
    wrong = r"red, valid split: a task needs 5 classes and the split has 2.*--validation-tasks 0"
    with pytest.raises(DataError, match=wrong):
        train_backbone(domains, backbone_settings(), tmp_path / "b", protocol=PROTOCOL, watch=Watch())
    with pytest.raises(DataError, match=wrong):
        train_preconditioners(backbone, tasks, preconditioner_settings(), tmp_path / "p", watch=Watch())
    assert not list(tmp_path.iterdir())
    settings = preconditioner_settings(validation_tasks=0)
    trained = train_preconditioners(backbone, tasks, settings, tmp_path / "p", watch=Watch())
    assert trained.outcome.best is None


def test_a_task_is_the_same_whenever_it_is_asked_for(tasks: ResidentTasks) -> None:
    address = Address(5, "red", "train", 3)
    first, again = tasks.episode(address), tasks.episode(address)
    assert torch.equal(first.task.support.images, again.task.support.images)
    assert first.class_ids == again.class_ids


def test_every_image_comes_once_a_round(residents: dict[str, ResidentDomain]) -> None:
    stream = image_stream(residents["red"], 32, seed=3)  # 120 images, so rounds and batches do not meet
    rows = np.concatenate([stream.at(step)[0] for step in range(15)])  # 480: four rounds
    for number in range(4):
        assert sorted(rows[120 * number : 120 * (number + 1)]) == sorted(stream.rows)
    assert rows[:120].tolist() != rows[120:240].tolist()


def test_labels_belong_to_their_images(residents: dict[str, ResidentDomain]) -> None:
    stream = image_stream(residents["grey"], 300, seed=0)
    rows, labels = stream.at(2)
    known = dict(zip(stream.rows.tolist(), stream.labels.tolist(), strict=True))
    assert [known[row] for row in rows.tolist()] == labels.tolist()
    assert set(labels.tolist()) == set(range(stream.classes))


def test_streams_differ_by_seed_and_domain(residents: dict[str, ResidentDomain]) -> None:
    first = image_stream(residents["red"], 16, 0).at(0)[0].tolist()
    assert image_stream(residents["red"], 16, 0).at(0)[0].tolist() == first
    assert image_stream(residents["red"], 16, 1).at(0)[0].tolist() != first
    assert image_stream(residents["grey"], 16, 0).at(0)[0].tolist() != first


def test_rates_restart() -> None:
    rates = [cosine_restarts(0.1, step, 2_500) for step in (0, 1_250, 2_499, 2_500, 5_000)]
    assert rates == pytest.approx([0.1, 0.05, 0.0, 0.1, 0.1], abs=1e-6)
