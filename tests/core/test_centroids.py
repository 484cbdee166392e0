import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from fewshift.core.centroids import cosine_logits, prototypes, unit


def looped(features: torch.Tensor, labels: torch.Tensor, way: int) -> torch.Tensor:
    return torch.stack([features[labels == j].mean(dim=0) for j in range(way)])


@settings(max_examples=30, deadline=None)
@given(way=st.integers(5, 50), most=st.integers(1, 9), seed=st.integers(0, 10**6))
def test_the_product_equals_the_loop_with_unequal_shots(way: int, most: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    shots = torch.randint(1, most + 1, (way,), generator=generator)
    labels = torch.arange(way).repeat_interleave(shots)
    labels = labels[torch.randperm(len(labels), generator=generator)]
    features = torch.randn(len(labels), 7, generator=generator, dtype=torch.float64)
    expected = looped(features, labels, way)
    torch.testing.assert_close(prototypes(features, labels, way), expected, rtol=1e-12, atol=1e-12)


def test_an_absent_class_is_a_zero_vector_with_finite_derivatives_of_both_orders() -> None:
    features = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([0, 0, 2, 2])
    centres = prototypes(features, labels, 4)
    assert torch.equal(centres[[1, 3]], torch.zeros(2, 3, dtype=torch.float64))
    logits = cosine_logits(features, centres)
    assert torch.equal(logits[:, [1, 3]], torch.zeros(4, 2, dtype=torch.float64))
    (first,) = torch.autograd.grad(F.cross_entropy(logits, labels), features, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), features)
    assert first.isfinite().all()
    assert second.isfinite().all()


def test_a_feature_of_zeros_has_finite_derivatives_of_both_orders() -> None:
    features = torch.zeros(2, 3, dtype=torch.float32, requires_grad=True)
    (first,) = torch.autograd.grad(unit(features).sum(), features, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), features)
    assert first.isfinite().all()
    assert second.isfinite().all()


def test_cosine_logits_are_ten_cosines() -> None:
    features = torch.randn(6, 5, dtype=torch.float64)
    centres = torch.randn(3, 5, dtype=torch.float64)
    expected = 10 * F.cosine_similarity(features[:, None], centres[None], dim=-1)
    torch.testing.assert_close(cosine_logits(features, centres), expected, rtol=1e-12, atol=1e-12)
    assert cosine_logits(features * 1e3, centres * 1e-3).sub(expected).abs().max() < 1e-8
    torch.testing.assert_close(cosine_logits(features, centres, scale=1.0) * 10, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_features_are_averaged_in_single(dtype: torch.dtype) -> None:
    features = torch.randn(300, 4).to(dtype)
    labels = torch.arange(300) % 5
    centres = prototypes(features, labels, 5)
    assert centres.dtype == torch.float32
    torch.testing.assert_close(centres, looped(features.float(), labels, 5), rtol=1e-5, atol=1e-6)
    assert cosine_logits(features, centres).dtype == torch.float32


def test_gradients_reach_features_through_their_centroid() -> None:
    features = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda z: prototypes(z, torch.tensor([0, 1, 1, 1]), 2), features)
