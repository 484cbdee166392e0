"""The Mahalanobis head against its definition, class by class."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fewshift.core.mahalanobis import Gaussians, class_gaussians, mahalanobis_logits


def some_task(shots: list[int], dim: int = 6, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(len(shots)).repeat_interleave(torch.tensor(shots))
    labels = labels[torch.randperm(len(labels), generator=generator)]
    features = torch.randn(len(labels), dim, generator=generator, dtype=torch.float64)
    return features + labels[:, None], labels, torch.randn(5, dim, generator=generator, dtype=torch.float64)


def by_definition(features: Tensor, labels: Tensor, queries: Tensor, quirk: bool = False) -> Tensor:
    """As the paper and its code write it: a loop over classes, `torch.cov`, an explicit inverse."""
    whole, columns = torch.cov(features.T), []
    for label in range(int(labels.max()) + 1):
        own = features[labels == label]
        count = len(own)
        alone = torch.zeros_like(whole) + (own[0].var() if quirk else 0.0)
        within = torch.cov(own.T) if count > 1 else alone
        share = count / (count + 1)
        metric = torch.linalg.inv(share * within + (1 - share) * whole + torch.eye(len(whole)).double())
        apart = queries - own.mean(dim=0)
        columns.append(-torch.einsum("nd,de,ne->n", apart, metric, apart))
    return torch.stack(columns, dim=1)


@settings(max_examples=25, deadline=None)
@given(shots=st.lists(st.integers(1, 6), min_size=2, max_size=8), seed=st.integers(0, 10**6))
@pytest.mark.parametrize("quirk", [False, True])
def test_logits_equal_the_definition(shots: list[int], seed: int, quirk: bool) -> None:
    features, labels, queries = some_task(shots, seed=seed)
    classes = class_gaussians(features, labels, len(shots), published_one_shot=quirk)
    expected = by_definition(features, labels, queries, quirk)
    torch.testing.assert_close(mahalanobis_logits(queries, classes), expected, rtol=1e-9, atol=1e-9)


def test_the_published_one_shot_rule_is_another_one() -> None:
    features, labels, queries = some_task([1, 1, 1])
    ours, theirs = (
        mahalanobis_logits(queries, class_gaussians(features, labels, 3, published_one_shot=quirk))
        for quirk in (False, True)
    )
    assert not torch.allclose(ours, theirs)


def test_with_the_identity_it_is_the_squared_distance() -> None:
    features, _, queries = some_task([2, 2])
    means = features[:3]
    flat = Gaussians(means, torch.eye(6).double().expand(3, -1, -1))
    torch.testing.assert_close(mahalanobis_logits(queries, flat), -torch.cdist(queries, means).square())


def test_gradients_go_through_means_and_covariances() -> None:
    features, labels, queries = some_task([1, 3, 2])

    def loss(values: Tensor) -> Tensor:
        return mahalanobis_logits(queries, class_gaussians(values, labels, 3)).square().mean()

    assert torch.autograd.gradcheck(loss, features.requires_grad_())


def test_half_precision_is_widened() -> None:
    features, labels, queries = some_task([4, 4])
    found = mahalanobis_logits(queries.half(), class_gaussians(features.half(), labels, 2))
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), by_definition(features, labels, queries), rtol=0.05, atol=0.05)
