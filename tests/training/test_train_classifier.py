"""Algorithm 2: only g learns, by gradients through the coefficients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from patterns import WATCH, classifier_settings, some_preconditioners, tiny_backbone
from small_kits import shared_start
from torch import Tensor

from fewshift.core.coefficients import task_coefficients
from fewshift.core.metagrad import MetaGradient
from fewshift.core.starts import DomainStarts
from fewshift.errors import FewshiftError
from fewshift.nets.backbone import Backbone, freeze
from fewshift.nets.kit import ImageSettings, Kit, load_kit, save_kit
from fewshift.nets.resnet import ResNet18
from fewshift.nets.set_encoder import DatasetClassifier
from fewshift.training import journal
from fewshift.training.checkpoint import load_checkpoint
from fewshift.training.classifier import ClassifierLearner, train_classifier
from fewshift.training.classifier_objective import ClassifierObjective
from fewshift.training.distributed import ALONE
from fewshift.training.fastest import best_meta_gradients
from fewshift.training.loop import LAST, LOG
from fewshift.training.metagradients import Job, MetaGradients, OneByOne
from fewshift.training.settings import ClassifierSettings, InnerLevel
from fewshift.training.tasks import ResidentTasks, chosen_tasks
from fewshift.types import Address, Episode, Labelled, Task


def some_starts(backbone: Backbone, domains: tuple[str, ...]) -> DomainStarts:
    first = shared_start(domains, backbone.init())
    scales = torch.arange(1, len(domains) + 1, dtype=backbone.dtype)[:, None, None]
    return replace(first, values={site: value * (1 + 0.1 * scales) for site, value in first.values.items()})


def learner_of(
    backbone: Backbone,
    tasks: ResidentTasks,
    settings: ClassifierSettings,
    meta_gradients: MetaGradients | None = None,
    starts: DomainStarts | None = None,
) -> ClassifierLearner:
    learned = some_preconditioners(backbone, tasks.domains)
    return ClassifierLearner(
        backbone, learned, starts, tasks, settings, meta_gradients or best_meta_gradients(backbone), ALONE
    )


def test_the_domains_are_learned(backbone: Backbone, tasks: ResidentTasks) -> None:
    settings = classifier_settings(auxiliary=0.0, rate=0.01, period=1000, tasks_per_update=4, width=16)
    learner = learner_of(backbone, tasks, settings)
    before = learner.update(0)
    for step in range(1, 25):
        learner.update(step)
    after = learner.update(0)
    assert float(after["loss"]) < float(before["loss"]) - 0.15
    assert float(after["domain_accuracy"]) == 1


def test_nothing_but_the_classifier_moves(backbone: Backbone, tasks: ResidentTasks) -> None:
    starts = some_starts(backbone, tasks.domains)
    learner = learner_of(backbone, tasks, classifier_settings(), starts=starts)
    roots = {site: root.clone() for site, root in learner.preconditioners.roots.items()}
    values = {site: value.clone() for site, value in starts.values.items()}
    weights = {name: weight.detach().clone() for name, weight in learner.weights.items()}
    fingerprint = backbone.fingerprint()
    for step in range(2):
        learner.update(step)
    assert all(torch.equal(roots[site], root) for site, root in learner.preconditioners.roots.items())
    assert all(torch.equal(values[site], value) for site, value in starts.values.items())
    assert backbone.fingerprint() == fingerprint
    assert all(not torch.equal(weights[name], weight) for name, weight in learner.weights.items())


class NotToBeAsked:
    def __call__(self, jobs: Iterable[Job], inner: InnerLevel, starts: bool) -> Iterator[MetaGradient]:
        raise AssertionError("there is nothing to adapt")


def test_cross_entropy_alone_needs_no_inner_level(backbone: Backbone, tasks: ResidentTasks) -> None:
    learner = learner_of(backbone, tasks, classifier_settings(auxiliary=0.0), NotToBeAsked())
    found = learner.update(0)
    assert float(found["loss"]) == pytest.approx(float(found["cross_entropy"]))
    assert learner.validate() is not None


def test_the_auxiliary_loss_alone_does_not_know_the_domains(backbone: Backbone, tasks: ResidentTasks) -> None:
    """Two learners, one of which is told wrong domains, learn the same."""

    class Swapped(ClassifierObjective):
        def _judge(self, address: Address, *rest: object) -> object:  # type: ignore[override]
            other = "grey" if address.domain == "red" else "red"
            return super()._judge(replace(address, domain=other), *rest)

    settings = classifier_settings(auxiliary=1.0, cross_entropy=False)
    way = OneByOne(backbone)
    right, wrong = (learner_of(backbone, tasks, settings, way) for _ in range(2))
    wrong.judged = Swapped(wrong.net, backbone, wrong.preconditioners, None, tasks, settings, way)
    for learner in (right, wrong):
        learner.update(0)
    assert all(torch.equal(w, wrong.weights[name]) for name, w in right.weights.items())


def test_a_kits_file_changes_no_objective(tasks: ResidentTasks, tmp_path: Path) -> None:
    """Files hold their tensors in an order of their own."""
    backbone = freeze(ResNet18(2))
    learned = some_preconditioners(backbone, tasks.domains)
    kit = Kit(backbone, ImageSettings(), learned, some_starts(backbone, tasks.domains), None, tasks.domains)
    save_kit(kit, tmp_path / "kit")
    settings = classifier_settings(auxiliary=1.0, inner=InnerLevel(steps=3, rate=0.5, last_rate=0.05))
    net, losses = DatasetClassifier(len(tasks.domains), 4), []
    for starts in (kit.starts, load_kit(tmp_path / "kit").starts):
        objective = ClassifierObjective(net, backbone, learned, starts, tasks, settings, OneByOne(backbone))
        losses += [found.numbers["auxiliary"] for found in objective([Address(3, "grey", "train", 1)])]
    torch.testing.assert_close(losses[1], losses[0])


@pytest.mark.parametrize("with_starts", [False, True])
def test_gradients_equal_finite_differences(tasks: ResidentTasks, with_starts: bool) -> None:
    """Of cross-entropy plus λ times the outer loss, in double precision, through P and through theta_0."""
    backbone = tiny_backbone(torch.float64)
    settings = classifier_settings(auxiliary=0.7, inner=InnerLevel(steps=2, order=2, rate=0.3))

    class Doubled(ResidentTasks):
        def episode(self, address: Address) -> Episode:
            found = super().episode(address)
            support, query = found.task.support, found.query
            task = Task(Labelled(support.images.double(), support.labels), found.task.way)
            return replace(found, task=task, query=Labelled(query.images.double(), query.labels))

    doubled = Doubled(tasks.residents, tasks.protocol)
    starts = some_starts(backbone, tasks.domains) if with_starts else None
    learner = learner_of(backbone, doubled, settings, OneByOne(backbone), starts)
    learner.net.double()
    address = Address(3, "grey", "train", 1)

    def objective() -> Tensor:
        (judged,) = learner.judged([address])
        return judged.loss

    bias = learner.net.head.bias
    (found,) = torch.autograd.grad(objective(), [bias])
    for place in range(len(bias)):
        values = []
        for shift in (1e-5, -1e-5):
            with torch.no_grad():
                bias[place] += shift
            values.append(float(objective().detach()))
            with torch.no_grad():
                bias[place] -= shift
        assert float(found[place]) == pytest.approx((values[0] - values[1]) / 2e-5, rel=1e-4, abs=1e-9)
    entropy = torch.softmax(learner.net(doubled.episode(address).task.support.images), 0)[1] - 1
    assert abs(float(found[1]) - float(entropy.detach())) > 1e-6  # the auxiliary part is there


def test_an_update_is_of_the_sum_over_its_tasks(backbone: Backbone, tasks: ResidentTasks) -> None:
    """Lines 13 and 14 of Algorithm 2; Adam would not show it, so plain descent takes its place."""
    settings = classifier_settings(tasks_per_update=3, auxiliary=0.1)
    learner = learner_of(backbone, tasks, settings)
    addresses = chosen_tasks(learner.kind, settings, tasks.domains, 0)
    total = torch.stack([judged.loss for judged in learner.judged(addresses)]).sum()
    wanted = torch.autograd.grad(total, list(learner.weights.values()))
    before = [weight.detach().clone() for weight in learner.weights.values()]
    learner.optimizer = torch.optim.SGD(list(learner.weights.values()), lr=1.0)  # type: ignore[assignment]
    rate = float(learner.update(0)["rate"])
    for old, new, gradient in zip(before, learner.weights.values(), wanted, strict=True):
        torch.testing.assert_close(old - new.detach(), rate * gradient, rtol=1e-3, atol=1e-6)


def test_one_domain_has_a_sigmoid(backbone: Backbone, tasks: ResidentTasks) -> None:
    alone = ResidentTasks({"red": tasks.residents["red"]}, tasks.protocol)
    learner = learner_of(backbone, alone, classifier_settings(rate=0.05, auxiliary=0.1, period=100))
    coefficient = []
    for step in range(6):
        logits = learner.net(alone.episode(Address(0, "red", "train", 0)).task.support.images)
        coefficient.append(float(task_coefficients(logits).detach()))
        learner.update(step)
    assert coefficient[-1] > coefficient[0]
    assert 0 < coefficient[-1] < 1


class Poisoned:
    def __init__(self, backbone: Backbone, bad: set[int]) -> None:
        self.inside, self.bad, self.count = best_meta_gradients(backbone), bad, 0

    def __call__(self, jobs: Iterable[Job], inner: InnerLevel, starts: bool) -> Iterator[MetaGradient]:
        for found in self.inside(jobs, inner, starts):
            bad = self.count in self.bad
            self.count += 1
            yield replace(found, loss=found.loss * float("nan")) if bad else found


def test_tasks_that_are_not_finite_are_left_out_and_counted(
    backbone: Backbone, tasks: ResidentTasks, tmp_path: Path
) -> None:
    found = train_classifier(
        backbone,
        some_preconditioners(backbone, tasks.domains),
        tasks,
        classifier_settings(updates=2, validation_tasks=0),
        tmp_path,
        watch=WATCH,
        meta_gradients=Poisoned(backbone, {1, 2}),
    )
    assert found.outcome.skipped == 2
    assert all(weight.isfinite().all() for weight in found.classifier.parameters())


def test_a_run_in_pieces_equals_a_run_in_one(
    backbone: Backbone, tasks: ResidentTasks, tmp_path: Path
) -> None:
    learned = some_preconditioners(backbone, tasks.domains)
    starts = some_starts(backbone, tasks.domains)
    settings = classifier_settings()

    def train(folder: str, updates: int, resume: bool = False) -> dict[str, Tensor]:
        chosen = replace(settings, updates=updates)
        found = train_classifier(
            backbone, learned, tasks, chosen, tmp_path / folder, starts=starts, watch=WATCH, resume=resume
        )
        return found.classifier.state_dict()

    whole = train("whole", 4)
    train("pieces", 2)
    pieces = train("pieces", 4, resume=True)
    assert all(torch.equal(whole[name], pieces[name]) for name in whole)
    states = [load_checkpoint(tmp_path / name / LAST).tensors for name in ("whole", "pieces")]
    assert any("exp_avg_sq" in name for name in states[0])
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_other_preconditioners_are_refused(backbone: Backbone, tasks: ResidentTasks, tmp_path: Path) -> None:
    learned = some_preconditioners(backbone, tasks.domains)
    settings = classifier_settings(updates=1, auxiliary=0.0, validation_tasks=0)
    train_classifier(backbone, learned, tasks, settings, tmp_path, watch=WATCH)
    other = replace(learned, roots={site: root * 2 for site, root in learned.roots.items()})
    with pytest.raises(FewshiftError, match="its preconditioners is"):
        train_classifier(backbone, other, tasks, settings, tmp_path, watch=WATCH, resume=True)
    only = some_preconditioners(backbone, ("red",))
    with pytest.raises(FewshiftError, match="no preconditioners for grey: train on red only"):
        train_classifier(backbone, only, tasks, settings, tmp_path / "b", watch=WATCH)


def test_what_is_logged(backbone: Backbone, tasks: ResidentTasks, tmp_path: Path) -> None:
    learned = some_preconditioners(backbone, tasks.domains)
    train_classifier(backbone, learned, tasks, classifier_settings(updates=2), tmp_path, watch=WATCH)
    lines = list(journal.read(tmp_path / LOG))
    wanted = {
        "loss",
        "cross_entropy",
        "auxiliary",
        "accuracy",
        "domain_accuracy",
        "skipped",
        "rate",
        "weight_norm",
    }
    assert all(wanted <= line.keys() for line in lines if "loss" in line)
    (check,) = (line for line in lines if "validation" in line)
    assert check["validation"] == pytest.approx(
        -(check["cross_entropy"] + 0.1 * check["auxiliary"]), rel=1e-4
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"updates": 0}, "updates is 0"),
        ({"auxiliary": -1.0}, "auxiliary weight of 0 or more"),
        ({"auxiliary": 0.0, "cross_entropy": False}, "nothing to learn"),
    ],
)
def test_settings_check_themselves(change: dict[str, object], said: str) -> None:
    with pytest.raises(FewshiftError, match=said):
        classifier_settings(**change)
