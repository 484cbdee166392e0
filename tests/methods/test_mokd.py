"""MOKD: what one shot does to it, and that its steps do what they are for."""

import pytest
import torch
from tiny_kits import in_double

from fewshift.core.centroids import membership, unit
from fewshift.core.descent import gradients
from fewshift.core.kernels import hsic, hsic_variance, rbf_gram
from fewshift.evaluation.contract_bench import Bench
from fewshift.methods import mokd, ncc
from fewshift.methods.mokd import MAP, MULTIPLIERS, balance_of, chosen_multiplier, dependence_objective
from fewshift.nets.kit import Kit


@pytest.mark.parametrize("seen", [True, False, None])
def test_with_one_image_a_class_it_is_nearest_centroid(tiny_kit: Kit, seen: bool | None) -> None:
    """Weight decay, where there is any, only scales the map, which a cosine does not see."""
    kit = in_double(tiny_kit)
    task, images = Bench(mokd(kit), dtype=torch.float64).task([1] * 5, seen=seen)
    wanted = ncc(kit).adapt(task)(images)
    torch.testing.assert_close(mokd(kit).adapt(task)(images), wanted, rtol=1e-9, atol=1e-9)


def test_three_images_are_too_few_for_a_step(tiny_kit: Kit) -> None:
    task, images = Bench(mokd(tiny_kit)).task([1, 1, 1])
    assert torch.equal(mokd(tiny_kit).adapt(task)(images), ncc(tiny_kit).adapt(task)(images))


def test_the_bandwidth_is_the_surest_of_fifteen() -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(20) % 4
    features = torch.randn(4, 6, generator=generator, dtype=torch.float64)[labels]
    features = unit(features + 0.5 * torch.randn(20, 6, generator=generator, dtype=torch.float64))
    wanted = membership(labels, 4, torch.float64)
    power = {}
    for c in MULTIPLIERS:
        pair = rbf_gram(features, c), rbf_gram(wanted, c)
        power[c] = float(hsic(*pair) / (hsic_variance(*pair) + 1e-5).sqrt())
    assert float(chosen_multiplier(features, wanted)) == max(power, key=lambda c: power[c])


def test_the_objective_is_the_published_sum() -> None:
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(8, 5, generator=generator, dtype=torch.float64)
    labels = membership(torch.arange(8) % 3, 3, torch.float64)
    start = {MAP: torch.eye(5, dtype=torch.float64) * 1.5}
    loss, _ = gradients(dependence_objective(features, labels, 0.5, 3.0, 0.25), start)
    given, wanted = rbf_gram(unit(features), 0.5), rbf_gram(labels, 0.5)
    by_hand = -8 * hsic(given, wanted) + 3 * 8 * hsic(given, given) + 0.25 / 2 * 5 * 1.5**2
    torch.testing.assert_close(loss, by_hand)


@pytest.mark.parametrize(("seen", "decay"), [(True, 0.25), (False, 0.0), (None, 0.0)])
def test_its_steps_are_torchs_adadelta_with_decay_on_domains_trained_on(
    tiny_kit: Kit, seen: bool | None, decay: float
) -> None:
    kit = in_double(tiny_kit)
    task, images = Bench(mokd(kit), dtype=torch.float64).task([3, 4, 2], seen=seen)
    features, queries = kit.backbone.embed(task.support.images), kit.backbone.embed(images)
    labels = membership(task.support.labels, 3, torch.float64)
    multiplier = chosen_multiplier(unit(features), labels)
    objective = dependence_objective(features, labels, multiplier, balance=1.0, decay=0.0)
    matrix = torch.eye(features.shape[1], dtype=torch.float64).requires_grad_()
    optimizer = torch.optim.Adadelta([matrix], lr=0.25, weight_decay=decay)
    for _ in range(40):
        optimizer.zero_grad()
        objective({MAP: matrix}).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    moved, asked = ((x @ matrix.detach().T) for x in (features, queries))
    centres = torch.stack([moved[task.support.labels == c].mean(dim=0) for c in range(3)])
    wanted = 10 * torch.nn.functional.cosine_similarity(asked[:, None], centres[None], dim=-1)
    adapted = mokd(kit).adapt(task)
    assert adapted.notes["oracle"] == (seen is not None)
    torch.testing.assert_close(adapted(images), wanted, rtol=1e-8, atol=1e-8)


def test_forty_steps_lower_the_loss(tiny_kit: Kit) -> None:
    task, _ = Bench(mokd(tiny_kit)).task([4] * 5)
    losses = mokd(tiny_kit).adapt(task).notes["losses"]
    assert losses[-1] < losses[0]


def test_the_second_term_weighs_more_with_more_images() -> None:
    assert [balance_of(shot) for shot in (1, 1.2, 5, 5.5)] == [0, 1, 1, 3]
