"""Fine-tuning: what moves, what does not, and where the rate comes from."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fewshift.core.adam import Adam
from fewshift.core.descent import Trajectory
from fewshift.core.pseudo_query import recolour, shift, vary
from fewshift.errors import FewshiftError
from fewshift.evaluation.contract_bench import Bench
from fewshift.methods import METHODS, fine_tune, ncc, norm_tune
from fewshift.methods import tuned as tuned_file
from fewshift.methods.held_out import place_in_class
from fewshift.methods.tuned import tuned_at
from fewshift.nets.any_module import backbone_from
from fewshift.nets.feature_kit import on_features
from fewshift.nets.kit import Kit
from fewshift.nets.tuning import PlainTuning, Rule
from fewshift.nets.whole import every_weight, kernels, norm_affine
from fewshift.types import Labelled, Predictor, Task


def test_the_parts_of_a_network(tiny_kit: Kit) -> None:
    net = tiny_kit.backbone.net
    assert len(kernels(net)) == 20
    assert len(norm_affine(net)) == 40
    assert set(every_weight(net)) == set(kernels(net)) | set(norm_affine(net))
    assert "last.weight" not in every_weight(net)


@pytest.mark.parametrize("name", ["fine_tune", "norm_tune"])
def test_without_steps_it_is_nearest_centroid(tiny_kit: Kit, name: str) -> None:
    method = replace(METHODS[name](tiny_kit), steps=0)  # type: ignore[type-var]
    task, images = Bench(method).task([3, 2, 4])
    torch.testing.assert_close(method.adapt(task)(images), ncc(tiny_kit).adapt(task)(images))


def test_where_nothing_can_move_they_are_refused() -> None:
    """Features stand for a network that is not there; as nearest centroid it would bear a wrong name."""
    layers = torch.nn.Conv2d(3, 6, 3), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    kit = Kit(backbone_from(torch.nn.Sequential(*layers)))
    with pytest.raises(FewshiftError, match="norm_tune has nothing to move in WithLastMap"):
        norm_tune(kit)
    for name in ("fine_tune", "norm_tune", "pmf"):
        with pytest.raises(FewshiftError, match=rf"{name} has nothing to move.*images instead of features"):
            METHODS[name](on_features(kit))


def test_they_start_from_the_network_as_it_is(tiny_kit: Kit) -> None:
    for method, sites in ((fine_tune(tiny_kit), every_weight), (norm_tune(tiny_kit), norm_affine)):
        start = method.engine.backbone.init()
        assert set(start) == set(sites(tiny_kit.backbone.net))
        assert all(torch.equal(value, tiny_kit.backbone.frozen[site]) for site, value in start.items())


def test_its_loss_goes_down_at_every_rate(tiny_kit: Kit) -> None:
    task, _ = Bench(ncc(tiny_kit)).task([3, 3, 3])
    for method in (fine_tune(tiny_kit), norm_tune(tiny_kit)):
        for rate in method.rates:
            losses = tuned_at(method.engine, 6, task, rate).notes["losses"]
            assert losses[-1] < losses[0]


@pytest.mark.parametrize("name", ["fine_tune", "norm_tune", "pmf"])
def test_at_one_shot_there_is_nothing_to_choose_a_rate_by(tiny_kit: Kit, name: str) -> None:
    task, images = Bench(ncc(tiny_kit)).task([1, 1, 1])
    adapted = METHODS[name](tiny_kit).adapt(task)
    assert adapted.notes["rates"] == [0.0]
    torch.testing.assert_close(adapted(images), ncc(tiny_kit).adapt(task)(images))


@pytest.mark.parametrize(
    ("name", "kept"), [("fine_tune", [0, 2, 3]), ("norm_tune", [0, 2, 3]), ("pmf", [0, 3])]
)
def test_the_rate_is_the_first_that_does_best_on_the_images_left_out(
    tiny_kit: Kit, monkeypatch: pytest.MonkeyPatch, name: str, kept: list[int]
) -> None:
    method = METHODS[name](tiny_kit)
    images = torch.randn(5, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    task = Task(Labelled(images, torch.tensor([0, 0, 0, 1, 1])), 2)
    right = dict(zip((0.0, *method.rates), (1, 1, 2, 2), strict=True))  # of the images that were left out
    tried = []

    def tune(self: PlainTuning, few: Task, rules: Sequence[Rule], *_more: object) -> list[Trajectory]:
        updates = [rule(["weights"]) for rule in rules]
        found = [update.rates["weights"] for update in updates if isinstance(update, Adam)]
        tried.extend((rate, few.support.images) for rate in found)
        return [Trajectory({"rate": torch.tensor(rate)}, torch.empty(0)) for rate in found]

    def classifier(_engine: PlainTuning, _few: Task, end: Trajectory) -> Predictor:
        rate = round(float(end.params["rate"]), 6) if "rate" in end.params else 0.0
        left_out = torch.tensor([n for n in range(5) if n not in kept])
        labels = task.support.labels[left_out]
        answers = torch.where(torch.arange(len(labels)) < right[rate], labels, 1 - labels)
        return lambda _: F.one_hot(answers, 2).float()

    monkeypatch.setattr(PlainTuning, "tune", tune)
    monkeypatch.setattr(tuned_file, "_classifier", classifier)
    assert method.adapt(task).notes["rates"] == [method.rates[1]]
    assert [rate for rate, _ in tried] == [*method.rates, method.rates[1]]
    assert all(torch.equal(few, images[kept]) for _, few in tried[:-1])
    assert torch.equal(tried[-1][1], images)


def test_places_count_within_each_class() -> None:
    labels = torch.tensor([1, 0, 1, 2, 0, 2, 1], dtype=torch.int32)
    assert place_in_class(labels, 3).tolist() == [0, 0, 1, 0, 1, 1, 2]


def test_pseudo_queries_come_from_the_generator_alone() -> None:
    images = torch.rand(4, 3, 16, 16)
    first, again = (vary(images, torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(first, again)
    assert not torch.equal(first, vary(images, torch.Generator().manual_seed(4)))
    changed = [not torch.equal(images, vary(images, torch.Generator().manual_seed(s))) for s in range(200)]
    assert 0.8 < sum(changed) / 200 < 0.97


def test_colours_change_by_brightness_then_saturation_then_contrast() -> None:
    """Confirmed from code: + (u - 1/2), then times 2u about the grey, then times u + 1/2 about the mean."""
    images, draws = torch.rand(2, 3, 4, 4), torch.rand(3, 2, 1, 1, 1)
    for image, found, (b, s, c) in zip(images, recolour(images, draws), draws[..., 0, 0, 0].T, strict=True):
        bright = image + b - 0.5
        grey = (bright[0] + bright[1] + bright[2]) / 3
        coloured = torch.stack([(channel - grey) * 2 * s + grey for channel in bright])
        torch.testing.assert_close(found, (coloured - coloured.mean()) * (c + 0.5) + coloured.mean())


def test_a_shift_moves_whole_pixels_and_brings_in_zeros() -> None:
    image = torch.arange(1.0, 10.0).view(1, 1, 3, 3)

    def moved(down: int, right: int) -> Tensor:
        return shift(image, torch.tensor([down]), torch.tensor([right]))[0, 0]

    assert torch.equal(moved(0, 0), image[0, 0])
    assert moved(1, -1).tolist() == [[0, 0, 0], [2, 3, 0], [5, 6, 0]]
