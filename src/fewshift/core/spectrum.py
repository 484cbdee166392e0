"""What a preconditioner looks like: eigenvalues, effective rank, whether it is positive definite."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fewshift.types import Preconditioner


def eigenvalues(matrices: Tensor) -> Tensor:  # (..., m, m) -> (..., m)
    """Ascending eigenvalues of the symmetric part, on which xᵀPx alone depends."""
    values: Tensor = torch.linalg.eigvalsh((matrices + matrices.mT) / 2)
    return values


def smallest_eigenvalue(matrices: Tensor) -> Tensor:  # (..., m, m) -> (...)
    """Positive exactly when the matrix is positive definite, symmetric or not."""
    return eigenvalues(matrices)[..., 0]


def largest_eigenvalue(matrices: Tensor) -> Tensor:  # (..., m, m) -> (...)
    """Descent is stable while rate · this · curvature stays under 2."""
    return eigenvalues(matrices)[..., -1]


def largest_eigenvalue_estimate(matrices: Tensor, iterations: int = 16) -> Tensor:  # (..., m, m) -> (...)
    """A lower bound of the largest eigenvalue by power iteration, cheap enough for every training step.

    For symmetric positive semi-definite matrices only.
    """
    size = matrices.shape[-1]
    # sines of whole numbers: a fixed vector that is orthogonal to no direction of interest
    vectors = torch.arange(1, size + 1, dtype=matrices.dtype, device=matrices.device).sin()[:, None]
    for _ in range(iterations):
        vectors = torch.nn.functional.normalize(matrices @ vectors, dim=-2)
    return (vectors.mT @ matrices @ vectors)[..., 0, 0]


def effective_rank(matrices: Tensor) -> Tensor:  # (..., m, m) -> (...)
    """exp of the entropy of the normalised singular values (the appendix on MᵀM, after Roy and Vetterli).

    A matrix of zeros has rank 0.
    """
    values: Tensor = torch.linalg.svdvals(matrices)
    total = values.sum(dim=-1)
    shares = values / torch.where(total > 0, total, 1.0)[..., None]
    entropy: Tensor = torch.special.entr(shares).sum(dim=-1)
    return torch.where(total > 0, entropy.exp(), 0.0)


def non_pd_rate(preconditioner: Preconditioner) -> float:
    """The share of sites whose matrix is not positive definite; stacks (K, m, m) count matrix by matrix."""
    smallest = [smallest_eigenvalue(matrices).flatten() for matrices in preconditioner.values()]
    return (torch.cat(smallest) <= 0).double().mean().item()


def sharpest_and_non_pd(stacks: Sequence[Tensor]) -> tuple[Tensor, Tensor]:  # (k, m, m) each -> (), ()
    """The largest eigenvalue of all, and the share of matrices that are not positive definite."""
    found = [eigenvalues(stack) for stack in stacks]
    largest = torch.stack([values[..., -1].max() for values in found]).max()
    smallest = torch.cat([values[..., 0].flatten() for values in found])
    return largest, (smallest <= 0).to(largest.dtype).mean()
