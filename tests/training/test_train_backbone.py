"""Extractors: one domain, several, several with teachers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from patterns import PROTOCOL, WATCH, backbone_settings

from fewshift.data.resident import ResidentDomain
from fewshift.errors import FewshiftError
from fewshift.training import journal
from fewshift.training.backbone import BackboneLearner, TrainedBackbone, train_backbone
from fewshift.training.checkpoint import load_checkpoint
from fewshift.training.distill import Distillation, Teacher
from fewshift.training.distributed import ALONE
from fewshift.training.heads import memory_layout, new_multi_head
from fewshift.training.loop import LAST, LOG
from fewshift.training.settings import BackboneSettings
from fewshift.training.teachers import load_teacher

Residents = dict[str, ResidentDomain]


def train(domains: Residents, settings: BackboneSettings, folder: Path, **options: object) -> TrainedBackbone:
    return train_backbone(domains, settings, folder, protocol=PROTOCOL, watch=WATCH, **options)  # type: ignore[arg-type]


def test_the_loss_goes_down(residents: Residents) -> None:
    settings = backbone_settings(default_batch=16, period=1000, rate=0.1, validation_tasks=2)
    learner = BackboneLearner(residents, settings, {}, PROTOCOL, ALONE)
    losses = [float(learner.update(step)["loss"]) for step in range(20)]
    assert sum(losses[-5:]) < 0.7 * sum(losses[:5])
    found = learner.validate()
    assert found is not None
    assert set(found.details["accuracy_by_domain"]) == {"red", "grey"}
    assert 0.2 < found.score <= 1


def test_the_loss_is_the_sum_of_the_domains_means(residents: Residents) -> None:
    settings = backbone_settings(batches={"red": 3}, default_batch=5)
    learner = BackboneLearner(residents, settings, {}, PROTOCOL, ALONE)
    images, labels, sizes = learner._batch(0)
    assert sizes == [3, 5]
    model = new_multi_head({"red": 10, "grey": 10}, 4, 2, settings.seed).train()
    features = model.net(images)
    parts = [
        torch.nn.functional.cross_entropy(head(part), wanted)
        for head, part, wanted in zip(model.heads, torch.split(features, sizes), labels, strict=True)
    ]
    assert float(learner.update(0)["loss"]) == pytest.approx(float(sum(parts).detach()), rel=1e-5)


def test_the_last_map_stays_the_identity(residents: Residents, tmp_path: Path) -> None:
    found = train(residents, backbone_settings(), tmp_path)
    assert torch.equal(found.backbone.frozen["last.weight"], torch.eye(32))
    assert not any(weight.requires_grad for weight in found.backbone.frozen.values())


def test_weight_decay_is_on_all_weights_and_the_rate_restarts(residents: Residents) -> None:
    learner = BackboneLearner(residents, backbone_settings(period=3), {}, PROTOCOL, ALONE)
    rates = [learner.update(step)["rate"] for step in range(4)]
    assert rates[3] == rates[0] == 0.03 > rates[1] > rates[2] > 0
    assert [group["weight_decay"] for group in learner.optimizer.param_groups] == [7e-4]
    trained = {name for name, weight in learner.model.named_parameters() if weight.requires_grad}
    assert (
        trained
        == set(learner.weights)
        == {n for n, _ in learner.model.named_parameters()} - {"net.last.weight"}
    )


def test_a_run_in_pieces_equals_a_run_in_one(residents: Residents, tmp_path: Path) -> None:
    teachers = {"red": _teacher(residents, tmp_path / "teacher")}
    settings = backbone_settings(distillation=Distillation(default_horizon=3))
    train(residents, settings, tmp_path / "whole", teachers=teachers)
    train(residents, replace(settings, updates=2), tmp_path / "pieces", teachers=teachers)
    train(residents, settings, tmp_path / "pieces", teachers=teachers, resume=True)
    states = [load_checkpoint(tmp_path / name / LAST).tensors for name in ("whole", "pieces")]
    assert {name.split("/")[0] for name in states[0]} == {"model", "optimizer", "students"}
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def _teacher(residents: Residents, folder: Path) -> Teacher:
    train({"red": residents["red"]}, backbone_settings(updates=2, validation_tasks=0), folder)
    return load_teacher(folder, "red")


def test_teachers_change_the_student_until_they_expire(residents: Residents, tmp_path: Path) -> None:
    teacher = _teacher(residents, tmp_path)
    settings = backbone_settings(distillation=Distillation(default_horizon=2))
    taught = BackboneLearner(residents, settings, {"red": teacher}, PROTOCOL, ALONE)
    alone = BackboneLearner(residents, settings, {}, PROTOCOL, ALONE)
    before = {name: weight.clone() for name, weight in teacher.net.state_dict().items()}
    adaptor = taught.students.weights["red"].clone()
    said = [taught.update(step) for step in range(3)]
    alone.update(0)
    assert [float(line["distillation"]) > 0 for line in said] == [True, True, False]
    assert not torch.equal(taught.students.weights["red"], adaptor)
    assert not torch.equal(taught.weights["net.conv1.weight"], alone.weights["net.conv1.weight"])
    assert all(torch.equal(before[name], weight) for name, weight in teacher.net.state_dict().items())


def test_a_teacher_is_the_network_of_its_run(residents: Residents, tmp_path: Path) -> None:
    found = train(residents, backbone_settings(updates=2), tmp_path)
    images = torch.randn(3, 3, 28, 28)
    for domain in ("red", "grey"):
        teacher = load_teacher(tmp_path, domain)
        assert torch.equal(teacher.net(images), found.backbone.embed(images))
        assert torch.equal(teacher.head.weight, found.teachers[domain].head.weight)
    with pytest.raises(FewshiftError, match="was trained on red, grey: it cannot teach blue"):
        load_teacher(tmp_path, "blue")
    with pytest.raises(FewshiftError, match="there is no training state"):
        load_teacher(tmp_path / "nowhere", "red")


def test_a_teacher_of_other_classes_or_pixels_is_refused(residents: Residents, tmp_path: Path) -> None:
    """Its head is compared with the student's class by class; that there are as many says little."""
    teacher, red = _teacher(residents, tmp_path), residents["red"]
    names = tuple(f"other {name}" for name in red.spec.class_names)
    others = replace(red, spec=replace(red.spec, class_names=names))
    smaller = replace(red, rule=replace(red.rule, size=20))
    for held, said in ((others, "other classes than this run's"), (smaller, "other pixels than this run's")):
        with pytest.raises(FewshiftError, match=said):
            BackboneLearner({"red": held}, backbone_settings(), {"red": teacher}, PROTOCOL, ALONE)


def test_a_run_does_not_go_on_with_other_classes(residents: Residents, tmp_path: Path) -> None:
    red = residents["red"]
    train({"red": red}, backbone_settings(updates=1), tmp_path)
    others = replace(red, spec=replace(red.spec, class_names=red.spec.class_names[::-1]))
    with pytest.raises(FewshiftError, match=r"its tasks\.classes\.red is"):
        train({"red": others}, backbone_settings(updates=2), tmp_path, resume=True)


def test_a_run_goes_on_with_the_same_validation_or_not_at_all(residents: Residents, tmp_path: Path) -> None:
    """Scores of other tasks cannot be compared, and without any the best state would be an old one."""
    train(residents, backbone_settings(updates=1, validation_tasks=1), tmp_path)
    with pytest.raises(FewshiftError, match="validation_tasks is 1, this run's is 0"):
        train(residents, backbone_settings(updates=2, validation_tasks=0), tmp_path, resume=True)


def test_what_is_logged(residents: Residents, tmp_path: Path) -> None:
    train(residents, backbone_settings(updates=2), tmp_path)
    lines = [line for line in journal.read(tmp_path / LOG) if "loss" in line]
    wanted = {"loss", "cross_entropy", "accuracy", "gradient_norm", "rate", "images_per_second", "memory_mib"}
    assert [wanted <= line.keys() for line in lines] == [True, True]


def test_half_precision_keeps_full_weights(residents: Residents) -> None:
    learner = BackboneLearner(residents, backbone_settings(precision="bfloat16"), {}, PROTOCOL, ALONE)
    assert torch.isfinite(torch.as_tensor(learner.update(0)["loss"]))
    assert {weight.dtype for weight in learner.weights.values()} == {torch.float32}


def test_narrow_networks_on_a_cpu_avoid_the_layout_that_corrupts_memory() -> None:
    assert memory_layout(8, torch.device("cpu")) == torch.contiguous_format
    assert memory_layout(16, torch.device("cpu")) == torch.channels_last
    assert memory_layout(4, torch.device("cuda")) == torch.channels_last


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"updates": 0}, "updates is 0"),
        ({"batches": {"red": 0}}, "the batch of red is 0"),
        ({"rate": -1.0}, "the rate is -1"),
        ({"rate": float("nan")}, "the rate is nan"),
    ],
)
def test_settings_check_themselves(change: dict[str, object], said: str) -> None:
    with pytest.raises(FewshiftError, match=said):
        backbone_settings(**change)
