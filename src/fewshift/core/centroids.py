"""The nearest-centroid classifier: prototypes and cosine logits, without loops or host synchronisation."""

from __future__ import annotations

import torch
from torch import Tensor

TINY = 1e-16  # added to squared lengths: far below any feature, yet all derivatives at zero stay finite


def membership(labels: Tensor, way: int, dtype: torch.dtype) -> Tensor:  # (n,) -> (n, way)
    """One-hot labels; unlike `F.one_hot` nothing is read back from the device."""
    return (labels[:, None] == torch.arange(way, device=labels.device)).to(dtype)


def prototypes(features: Tensor, labels: Tensor, way: int) -> Tensor:  # (n, d), (n,), way -> (way, d)
    """The mean feature of every class; the zero vector for one without rows.

    Half-precision features are averaged in float32.
    """
    features = widened(features)
    members = membership(labels, way, features.dtype)
    totals = members.sum(dim=0)
    return (members.T @ features) / totals.masked_fill(totals == 0, 1.0)[:, None]


def cosine_logits(
    features: Tensor, centres: Tensor, scale: float = 10.0
) -> Tensor:  # (n, d), (way, d) -> (n, way)
    """`scale` times the cosine between each feature and each centre; a zero vector has cosine 0 to all."""
    return scale * (unit(features) @ unit(centres).T)


def unit(vectors: Tensor) -> Tensor:  # (n, d) -> (n, d)
    """Rows of length one, smooth at the zero vector so that second derivatives exist."""
    vectors = widened(vectors)
    return vectors * (vectors.square().sum(dim=-1, keepdim=True) + TINY).rsqrt()


def widened(values: Tensor) -> Tensor:
    """At least float32: prototypes, cosines and losses are never computed in half precision."""
    return values.to(torch.promote_types(values.dtype, torch.float32))
