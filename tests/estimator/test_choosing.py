"""Held-out halves, and the choice of rates and steps."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import fewshift as fs
from fewshift.core.centroids import cosine_logits, prototypes
from fewshift.core.descent import Trajectory
from fewshift.core.starts import DomainStarts
from fewshift.core.updates import Adadelta, Preconditioned
from fewshift.estimator.choosing import choose, clearly_better
from fewshift.estimator.recipes import recipe
from fewshift.estimator.trials import Carried, halves, held_out_along, leave_one_out
from fewshift.methods.rates import Pair
from fewshift.nets.choice import choose_engine
from fewshift.nets.engine import PlainEngine
from fewshift.nets.kit import Kit
from fewshift.types import Labelled, Task, TaskParams

Pictures = Callable[..., tuple[list[Any], list[str]]]


def nothing() -> None:
    pass


def test_halves_hold_out_every_image_once_and_keep_every_class() -> None:
    labels = torch.tensor([0, 0, 0, 0, 0, 1, 1, 2, 3, 3, 3])
    folds = halves(labels, seed=0)
    assert folds is not None
    held = torch.cat([fold.held for fold in folds]).tolist()
    assert sorted(held) == [0, 1, 2, 3, 4, 5, 6, 8, 9, 10]  # all but the class with one image
    for fold in folds:
        assert set(labels[fold.kept].tolist()) == {0, 1, 2, 3}
        assert not set(fold.kept.tolist()) & set(fold.held.tolist())
    again = halves(labels, seed=0)
    assert again is not None
    assert torch.equal(again[0].held, folds[0].held)
    assert any(
        not torch.equal(other[0].held, folds[0].held) for s in range(1, 6) if (other := halves(labels, s))
    )
    assert halves(torch.arange(5), seed=0) is None


def test_larger_halves_of_odd_classes_go_to_both_sides() -> None:
    folds = halves(torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 3, 3, 4, 4, 4, 5, 5]), seed=0)
    assert folds is not None
    assert sorted(len(fold.held) for fold in folds) == [7, 8]


def test_large_sets_are_tried_on_a_part() -> None:
    folds = halves(torch.arange(5).repeat(100), seed=0, most=50)
    assert folds is not None
    assert sum(len(fold.held) for fold in folds) == 50


@pytest.mark.parametrize("kind", ["adadelta", "preconditioned"])
def test_a_descent_in_parts_is_the_descent(small_kit: Kit, kind: str) -> None:
    images = torch.randn(6, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    task = Task(Labelled(images, torch.arange(6) % 2), 2)
    start = small_kit.backbone.init()
    rates = dict.fromkeys(start, 0.05)
    rule: Any = Adadelta(rates) if kind == "adadelta" else Preconditioned(None, rates)
    engine = PlainEngine(small_kit.backbone)
    whole = engine.adapt(task, start, rule, 5).params
    carried, params = Carried(rule, nothing), start
    for steps in (2, 3):
        params = engine.adapt(task, params, carried, steps).params
    for site, value in whole.items():
        assert torch.equal(params[site], value)


def test_held_out_cosines_are_those_of_prototypes_that_never_saw_them(small_kit: Kit) -> None:
    engine = PlainEngine(small_kit.backbone)
    images = torch.randn(8, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    task = Task(Labelled(images, torch.arange(8) % 2), 2)
    folds = halves(task.support.labels, 0)
    assert folds is not None
    found = dict(held_out_along(engine, task, folds, {}, lambda: Preconditioned(None, {}), (0,), nothing))[0]
    features = small_kit.backbone.embed(images)
    for row, place in enumerate(found.places.tolist()):
        kept = next(fold.kept for fold in folds if place in fold.held)
        centres = prototypes(features[kept], task.support.labels[kept], 2)
        torch.testing.assert_close(
            found.cosines[row], cosine_logits(features[place : place + 1], centres, 1.0)[0]
        )


def test_leave_one_out_leaves_exactly_one_out() -> None:
    features = torch.randn(7, 5, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([0, 0, 0, 1, 1, 1, 2])
    found = leave_one_out(features, labels, 3)
    assert found.places.tolist() == [0, 1, 2, 3, 4, 5]
    for row, place in enumerate(found.places.tolist()):
        rest = torch.tensor([i for i in range(7) if i != place])
        centres = prototypes(features[rest], labels[rest], 3)
        torch.testing.assert_close(
            found.cosines[row], F.normalize(features[place], dim=0) @ F.normalize(centres).T
        )


class Scripted:
    """An engine whose features, and so whose held-out losses, follow a script of the steps taken."""

    def __init__(self, kit: Kit, quality: Callable[[float], float], way: int) -> None:
        self.backbone, self.quality, self.way = kit.backbone, quality, way
        self.name = "scripted"

    def adapt(self, task: Task, start: TaskParams, update: Any, steps: int) -> Trajectory:
        rate = update.rates["last"]
        return Trajectory({"last": start["last"] + steps * rate}, torch.zeros(steps))

    def embed(self, params: TaskParams, images: Tensor) -> Tensor:
        moved = float(params["last"].mean()) if params else 0.0
        own = images[:, 0, 0, 0].long()
        noise = torch.randn(
            len(images), self.way, generator=torch.Generator().manual_seed(int(own.sum()) % 7)
        )
        return F.one_hot(own, self.way).float() * self.quality(moved) + 0.3 * noise


@pytest.mark.parametrize(
    ("quality", "wanted"),
    [
        (lambda moved: 1.0 + moved / 10, 20),  # the farther the better
        (lambda moved: 1.0 if moved == 0 else 0.05, 0),  # any step hurts
        (lambda moved: 1.0 if moved == 0 else 1.5 if moved <= 5 else 0.2, 5),  # a few are enough
        (lambda moved: 1.0, 20),  # nothing to be seen: what validation says
    ],
)
def test_clear_verdicts_of_the_held_out_images_are_heard(
    small_kit: Kit, quality: Callable[[float], float], wanted: int
) -> None:
    way = 4
    labels = torch.arange(40) % way
    task = Task(Labelled(labels.float()[:, None, None, None].expand(-1, 3, 4, 4), labels), way)
    plan = recipe("gd", small_kit, task)
    plan = replace(plan, start={"last": torch.zeros(1)}, validated=Pair(0.0, 1.0))
    choice = choose(plan, Scripted(small_kit, quality, way), task, "auto", 0, nothing)
    settings = choice.settings
    assert settings.steps == wanted
    assert settings.frozen == (wanted == 0)
    assert "40 held-out support images" in settings.why
    assert choice.evidence is not None


def test_validation_chooses_where_nothing_can_be_held_out(small_kit: Kit) -> None:
    task = Task(Labelled(torch.randn(3, 3, 32, 32), torch.arange(3)), 3)
    plan = recipe("tsp", small_kit, task)
    choice = choose(plan, choose_engine(small_kit.backbone), task, "auto", 0, nothing)
    assert choice.settings.rates == tuple(plan.validated)
    assert choice.settings.steps == 20
    assert choice.evidence is None


def test_large_sets_take_the_steps_that_were_validated_for_them(small_kit: Kit) -> None:
    labels = torch.arange(60)
    task = Task(Labelled(torch.randn(60, 3, 32, 32), labels), 60)
    plan = recipe("tsp", small_kit, task)
    assert choose(plan, choose_engine(small_kit.backbone), task, "auto", 0, nothing).settings.steps == 40


def test_rates_are_the_kits_own_between_its_two_pairs(small_kit: Kit) -> None:
    task = Task(Labelled(torch.randn(4, 3, 32, 32), torch.arange(4) % 2), 2)
    plan = recipe("tsp", small_kit, task)
    assert plan.source == "rates of the kit's validation"
    assert 0.25 <= plan.validated.adapters <= 0.5
    assert 0.02 <= plan.validated.last <= 0.05
    bare = replace(small_kit, info={})
    assert recipe("tsp", bare, task).validated == recipe("tsp", bare, task).published
    assert recipe("tsa", small_kit, task).source == "the paper's rates"


def test_starting_values_bring_their_own_rates_and_share(small_kit: Kit) -> None:
    task = Task(Labelled(torch.randn(4, 3, 32, 32), torch.arange(4) % 2), 2)
    usual = small_kit.backbone.init()
    domains = small_kit.domains
    starts = DomainStarts(domains, {s: torch.ones(3, *v.shape) for s, v in usual.items()}, base=dict(usual))
    pairs = {"start": {"seen": [0.7, 0.07], "unseen": [0.7, 0.07]}}
    for share, wanted in ((0.0, usual["last"]), (1.0, torch.ones_like(usual["last"]))):
        info = {"rates": pairs, "start_shares": {"start": {"seen": share, "unseen": share}}}
        plan = recipe("tsp", replace(small_kit, starts=starts, info=info), task)
        assert plan.validated == pytest.approx(Pair(0.7, 0.07))
        torch.testing.assert_close(plan.start["last"], wanted)
        as_published = recipe("tsp", replace(small_kit, starts=starts, info=info), task, as_published=True)
        torch.testing.assert_close(as_published.start["last"], usual["last"])


def test_a_share_of_the_preconditioners_is_between_them_and_plain_descent(small_kit: Kit) -> None:
    task = Task(Labelled(torch.randn(4, 3, 32, 32), torch.arange(4) % 2), 2)
    shares = {"preconditioner_shares": {"tsp_start": {"seen": 0.5, "unseen": 0.5}}}
    whole, half = (recipe("tsp", replace(small_kit, info=info), task) for info in ({}, shares))
    pair = Pair(0.1, 0.1)
    for site, matrix in whole.update(pair).preconditioner.items():  # type: ignore[attr-defined]
        middle = (matrix + torch.eye(len(matrix))) / 2
        torch.testing.assert_close(half.update(pair).preconditioner[site], middle)  # type: ignore[attr-defined]
    published = recipe("tsp", replace(small_kit, info=shares), task, as_published=True).update(pair)
    torch.testing.assert_close(published.preconditioner, whole.update(pair).preconditioner)  # type: ignore[attr-defined]


def test_a_verdict_needs_more_than_two_standard_errors() -> None:
    noise = torch.randn(50, generator=torch.Generator().manual_seed(0))
    still = (noise - noise.mean()) / noise.std()
    assert clearly_better(torch.zeros(50), torch.full((50,), 0.1))
    assert clearly_better(torch.zeros(50), still + 2.1 / 50**0.5)
    assert not clearly_better(torch.zeros(50), still + 1.9 / 50**0.5)
    assert not clearly_better(torch.full((50,), 0.1), torch.zeros(50))
    assert not clearly_better(torch.zeros(1), torch.ones(1))


def test_features_computed_once_change_nothing(small_kit: Kit, pictures: Pictures) -> None:
    """What adapts the last map on its features is what the engine on images would find."""
    classifier = fs.FewShotClassifier(kit=small_kit, method="pa", settings="published", engine="plain")
    support = classifier.fit(*pictures(3, 3))._support_set
    assert support is not None
    task = support.task(torch.device("cpu"))
    plan, engine = recipe("pa", small_kit, task), PlainEngine(small_kit.backbone)
    settings = choose(plan, engine, task, "published", 0, nothing).settings
    assert settings == classifier.settings_
    params = engine.adapt(task, plan.start, plan.update(Pair(*settings.rates)), settings.steps).params
    torch.testing.assert_close(classifier.fitted_.params, params)
