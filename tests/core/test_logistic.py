"""Logistic regression: its gradient at the optimum, and scikit-learn's numbers."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fewshift.core import logistic
from fewshift.core.centroids import unit
from fewshift.core.logistic import LinearHead, fit_logistic


def logistic_loss(head: LinearHead, features: Tensor, labels: Tensor, strength: float) -> Tensor:
    """What the head has to minimise."""
    penalty = head.weight.square().sum() / (2 * strength * len(features))
    return F.cross_entropy(head(features), labels) + penalty


def problem(size: int, way: int, dim: int) -> tuple[Tensor, Tensor]:
    """Unequal classes of unit features that overlap."""
    generator = torch.Generator().manual_seed(size)
    labels = torch.cat([torch.arange(way), torch.randint(way, (size - way,), generator=generator)])
    means = torch.randn(way, dim, generator=generator, dtype=torch.float64)
    noise = torch.randn(size, dim, generator=generator, dtype=torch.float64)
    return unit(means[labels] + 1.5 * noise), labels


@pytest.mark.parametrize(("size", "way", "dim"), [(30, 4, 6), (5, 5, 16), (60, 2, 3)])
@pytest.mark.parametrize("strength", [0.1, 1.0, 1000.0])
def test_the_gradient_is_zero_at_the_optimum(size: int, way: int, dim: int, strength: float) -> None:
    features, labels = problem(size, way, dim)
    head = LinearHead(*(value.requires_grad_() for value in fit_logistic(features, labels, way, strength)))
    found = torch.autograd.grad(logistic_loss(head, features, labels, strength), list(head))
    assert max(float(gradient.abs().max()) for gradient in found) < 1e-8
    assert abs(float(head.bias.detach().sum())) < 1e-8


def test_no_other_head_is_better() -> None:
    features, labels = problem(30, 4, 6)
    head = fit_logistic(features, labels, 4)
    best = float(logistic_loss(head, features, labels, 1.0))
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        other = LinearHead(
            *(v + 0.01 * torch.randn(v.shape, generator=generator, dtype=v.dtype) for v in head)
        )
        assert float(logistic_loss(other, features, labels, 1.0)) > best


@pytest.mark.parametrize("strength", [0.3, 1.0, 30.0])
def test_it_is_the_optimum_that_scikit_learn_finds(strength: float) -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    features, labels = problem(40, 5, 8)
    theirs = linear_model.LogisticRegression(C=strength, tol=1e-10, max_iter=10_000)
    theirs.fit(features.numpy(), labels.numpy())
    ours = fit_logistic(features, labels, 5, strength)
    np.testing.assert_allclose(ours.weight.numpy(), theirs.coef_, rtol=1e-4, atol=1e-5)
    shares = ours(features).softmax(dim=1).numpy()
    np.testing.assert_allclose(shares, theirs.predict_proba(features.numpy()), rtol=1e-4, atol=1e-5)


def test_it_works_where_gradients_are_switched_off_and_in_single_precision() -> None:
    features, labels = problem(20, 3, 5)
    with torch.no_grad():
        head = fit_logistic(features.float(), labels, 3)
    assert head.weight.dtype == torch.float32
    torch.testing.assert_close(
        head.weight.double(), fit_logistic(features, labels, 3).weight, atol=1e-5, rtol=1e-4
    )


def test_a_search_that_found_no_way_down_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    features, labels = problem(30, 4, 6)
    true_direction, asked = logistic._newton_direction, 0

    def then_uphill(values: Tensor, shares: Tensor, penalty: Tensor, gradient: Tensor) -> Tensor:
        nonlocal asked
        asked += 1
        return true_direction(values, shares, penalty, gradient) if asked == 1 else 1e6 * gradient

    monkeypatch.setattr(logistic, "_newton_direction", then_uphill)
    head = fit_logistic(features, labels, 4)
    assert asked == 2
    assert float(logistic_loss(head, features, labels, 1.0)) < math.log(4)  # what the first step reached


def test_features_that_rounding_drowns_still_give_a_head() -> None:
    features, labels = problem(60, 2, 3)
    head = fit_logistic(features * 1e12, labels, 2, 1e-6)
    assert float(logistic_loss(head, features * 1e12, labels, 1e-6)) < math.log(2)
    lost = fit_logistic(features * math.nan, labels, 2)
    assert not lost.weight.any()  # nothing can be learned from it: no class is preferred
