"""Simple CNAPS's Mahalanobis classifier: one Gaussian per class, its covariance shrunk towards the task's.

With n_k support features of class k, their mean μ_k and sample covariance Σ_k, and Σ that of the whole
support set: λ_k = n_k / (n_k + 1), Q_k = λ_k Σ_k + (1 − λ_k) Σ + I, and the logit of class k is
−(f − μ_k)ᵀ Q_k⁻¹ (f − μ_k), without a half (Bateni et al. 2020; confirmed from code).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fewshift.core.centroids import membership, prototypes, widened


@dataclass(frozen=True)
class Gaussians:
    """One Gaussian per class."""

    means: Tensor  # (way, d)
    factors: Tensor  # (way, d, d) lower triangular, Q_k = L_k L_kᵀ


def class_gaussians(
    features: Tensor, labels: Tensor, way: int, *, published_one_shot: bool = False
) -> Gaussians:  # (n, d), (n,)
    """μ_k and Q_k of every class, differentiable in the features; without a loop over classes.

    A class of one image has Σ_k = 0. The published code takes there the variance of the feature's own d
    numbers and adds it to every entry of the matrix; `published_one_shot` does so too.
    """
    features = widened(features)
    shots = membership(labels, way, features.dtype).sum(dim=0)
    means = prototypes(features, labels, way)
    within = class_covariances(features, labels, way)
    if published_one_shot:
        within = within + torch.where(shots == 1, means.var(dim=1), 0.0)[:, None, None]
    share = (shots / (shots + 1))[:, None, None]
    eye = torch.eye(features.shape[1], dtype=features.dtype, device=features.device)
    regularised = share * within + (1 - share) * covariance(features) + eye
    # Q_k is I at least, so nothing can fail that the host would have to be asked about
    return Gaussians(means, torch.linalg.cholesky_ex(regularised, check_errors=False).L)


def mahalanobis_logits(features: Tensor, classes: Gaussians) -> Tensor:  # (n, d) -> (n, way)
    """Minus the squared distance of each feature to each class, in that class's own metric."""
    apart = widened(features)[None] - classes.means[:, None]  # (way, n, d)
    whitened = torch.linalg.solve_triangular(classes.factors, apart.mT, upper=False)
    distances: Tensor = whitened.square().sum(dim=1)
    return -distances.T


def covariance(features: Tensor) -> Tensor:  # (n, d) -> (d, d)
    """The sample covariance (divisor n − 1); zero for a single row."""
    centred = features - features.mean(dim=0)
    return centred.T @ centred / max(len(features) - 1, 1)


def class_covariances(features: Tensor, labels: Tensor, way: int) -> Tensor:  # (n, d), (n,) -> (way, d, d)
    """The sample covariance of every class; zero for a class of one row."""
    members = membership(labels, way, features.dtype)
    centred = features - prototypes(features, labels, way)[labels]
    scatter = (members.T[:, :, None] * centred).mT @ centred
    return scatter / (members.sum(dim=0) - 1).clamp_min(1)[:, None, None]
