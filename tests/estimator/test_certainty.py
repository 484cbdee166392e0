"""What held-out images say of certainty: calibration, the unknown score and hints."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import fewshift as fs
from fewshift.estimator.hints import support_hints
from fewshift.estimator.temperature import calibrated_scale
from fewshift.estimator.trials import HeldOut
from fewshift.estimator.unknown import Between, familiar, familiar_from_prototypes, places_between
from fewshift.nets.kit import Kit

Pictures = Callable[..., tuple[list[Any], list[str]]]


def _held_out(count: int, scale: float, way: int = 5) -> HeldOut:
    """Images whose labels are drawn from the softmax of their cosines at this scale."""
    generator = torch.Generator().manual_seed(0)
    cosines = torch.rand(count, way, generator=generator)
    labels = torch.multinomial((scale * cosines).softmax(1), 1, generator=generator)[:, 0]
    return HeldOut(cosines, labels, torch.arange(count))


@pytest.mark.parametrize("scale", [5.0, 10.0, 30.0])
def test_calibration_finds_the_scale_that_made_the_labels(scale: float) -> None:
    assert calibrated_scale(_held_out(3000, scale)) == pytest.approx(scale, rel=0.15)


def test_few_images_cannot_say_certain() -> None:
    sure = HeldOut(torch.eye(3), torch.arange(3), torch.arange(3))
    assert calibrated_scale(sure) < 20


def test_the_unknown_score_sets_strangers_apart(small_kit: Kit, pictures: Pictures) -> None:
    found = HeldOut(
        torch.tensor([[0.8, 0.1], [0.1, 0.7], [0.75, 0.0]]), torch.tensor([0, 1, 0]), torch.arange(3)
    )
    near = familiar(found)
    assert near.mean == pytest.approx(0.75)
    scores = near.scores(torch.tensor([[0.75, 0.0], [0.2, 0.1], [0.99, 0.0], [near.below, 0.0]]))
    assert scores[0] == pytest.approx(0.5, abs=1e-6)
    assert scores[1] > near.limit > scores[0] > scores[2]
    assert scores[3] == pytest.approx(near.limit, abs=1e-6)
    classifier = fs.FewShotClassifier(kit=small_kit, method="ncc").fit(*pictures(3, 5))
    own = classifier.unknown_score(pictures(3, 5, first=12)[0])
    noise = classifier.unknown_score(
        np.random.default_rng(0).integers(0, 255, (15, 32, 32, 3)).astype(np.uint8)
    )
    assert own.mean() < noise.mean()
    assert (
        classifier.is_unknown(pictures(3, 5)[0]) == (classifier.unknown_score(pictures(3, 5)[0]) > 0.95)
    ).all()


def test_hints_ask_for_two_opinions_where_there_are_two() -> None:
    cosines = torch.tensor([[0.2, 0.9], [0.9, 0.1], [0.6, 0.5]])
    first = HeldOut(cosines, torch.tensor([0, 0, 1]), torch.arange(3))
    names, classes = ["a.png", "b.png", "c.png"], ["cat", "dog"]
    assert [hint.name for hint in support_hints(first, names, classes)] == ["a.png", "c.png"]
    second = HeldOut(torch.tensor([[0.3, 0.8], [0.2, 0.7]]), torch.tensor([0, 1]), torch.tensor([0, 2]))
    (hint,) = support_hints(first, names, classes, second)
    assert (hint.name, hint.label, hint.nearer_to) == ("a.png", "cat", "dog")
    assert hint.margin == pytest.approx(0.7)


def test_with_one_image_a_class_the_kit_says_where_images_usually_lie() -> None:
    prototypes = torch.tensor([[1.0, 0.0], [0.6, 0.8]])  # their cosine is 0.6
    cosines = torch.tensor([[0.6, 0.1], [0.2, 0.8], [1.0, 0.6]])
    torch.testing.assert_close(places_between(cosines, prototypes), torch.tensor([0.0, 0.5, 1.0]).double())
    usual = familiar_from_prototypes(prototypes, Between(mean=0.25, spread=0.5))
    assert (usual.mean, usual.spread) == pytest.approx((0.7, 0.2))
    assert familiar_from_prototypes(prototypes).mean == pytest.approx(0.8)
