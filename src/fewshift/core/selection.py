"""Cosines to centroids of features that are put together from several extractors with weights.

A sample has a unit feature from each of K extractors. Weighted by w_k and laid end to end, the inner product
of two such vectors is Σ_k w_k² ⟨a_k, b_k⟩. So once the K inner products of samples with centroids are known,
any weights cost nothing but sums: the vectors of K·d numbers are never made.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fewshift.core.centroids import TINY, prototypes


@dataclass(frozen=True)
class Products:
    """Inner products by extractor: of samples with centroids, and of both with themselves."""

    cross: Tensor  # (k, n, way)
    samples: Tensor  # (k, n)
    centres: Tensor  # (k, way)


def extractor_centres(features: Tensor, labels: Tensor, way: int) -> Tensor:  # (n, k, d) -> (way, k, d)
    """The mean unit feature of every class, extractor by extractor."""
    return prototypes(features.flatten(1), labels, way).view(way, *features.shape[1:])


def inner_products(features: Tensor, centres: Tensor) -> Products:  # (n, k, d), (way, k, d)
    """All that a choice of weights needs to know of samples and centroids."""
    return Products(
        torch.einsum("nkd,wkd->knw", features, centres),
        features.square().sum(dim=-1).T,
        centres.square().sum(dim=-1).T,
    )


def weighted_cosine_logits(
    weights: Tensor, products: Products, scale: float = 10.0
) -> Tensor:  # (k,) -> (n, way)
    """`scale` times the cosine between the concatenations of w_k·feature_k and of w_k·centroid_k."""
    squares = weights.square()
    cross = torch.einsum("k,knw->nw", squares, products.cross)
    samples = torch.einsum("k,kn->n", squares, products.samples) + TINY
    centres = torch.einsum("k,kw->w", squares, products.centres) + TINY
    return scale * cross * (samples[:, None] * centres).rsqrt()
