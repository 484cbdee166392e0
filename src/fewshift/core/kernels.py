"""Gaussian kernels on sets of features and how much two sets depend on each other (HSIC), without loops.

Matrices may have leading dimensions, so that several bandwidths are measured at once. Nothing is read back
from the device.
"""

from __future__ import annotations

import torch
from torch import Tensor

SMALLEST = 1e-12  # of a bandwidth


def squared_distances(features: Tensor) -> Tensor:  # (n, d) -> (n, n)
    """‖a − b‖² of all pairs of rows; exactly 0 on the diagonal."""
    inner = features @ features.T
    squares = inner.diagonal()
    distances = (squares[:, None] + squares[None, :] - 2 * inner).clamp_min(0)
    return distances.masked_fill(_diagonal(distances), 0)


def median_above_zero(values: Tensor) -> Tensor:  # (...) -> ()
    """The median of the entries that are not 0 (of two middle ones the smaller); 1 where there are none.

    It is read from a sort with the zeros moved to the end, so that the host need not wait for their count.
    """
    ordered = values.flatten().masked_fill(values.flatten() == 0, torch.inf).sort().values
    count = torch.isfinite(ordered).sum()
    middle = ((count - 1) // 2).clamp_min(0)
    median = ordered.gather(0, middle[None])[0]
    return torch.where(count > 0, median, torch.ones_like(median))


def rbf_gram(features: Tensor, multiplier: Tensor | float = 1.0) -> Tensor:  # (n, d), (...) -> (..., n, n)
    """exp(−‖a − b‖² / 2cσ²), σ² the median squared distance that is not 0, as a constant; c the multiplier.

    Several multipliers give as many matrices.
    """
    distances = squared_distances(features)
    width = multiplier * median_above_zero(distances.detach()).clamp_min(SMALLEST)
    if isinstance(width, Tensor):
        width = width[..., None, None]
    return torch.exp(-distances / (2 * width))


def hsic(first: Tensor, second: Tensor) -> Tensor:  # (..., n, n), (..., n, n) -> (...)
    """The unbiased HSIC of two Gram matrices of the same n ≥ 4 samples (Song et al. 2012, Eq. 5)."""
    size = first.shape[-1]
    left, right = _hollow(first), _hollow(second)
    rows, columns = left.sum(-1), right.sum(-1)
    whole = rows.sum(-1) * columns.sum(-1) / ((size - 1) * (size - 2))
    crossed = (rows * columns).sum(-1) * (2 / (size - 2))
    return ((left * right).sum((-2, -1)) + whole - crossed) / (size * (size - 3))


def hsic_variance(first: Tensor, second: Tensor) -> Tensor:  # (..., n, n), (..., n, n) -> (...)
    """How much `hsic` would vary between sets of this size (Song et al. 2012, Theorem 5); never below 0."""
    size = first.shape[-1]
    left, right = _hollow(first), _hollow(second)
    rows, columns = left.sum(-1, keepdim=True), right.sum(-1, keepdim=True)  # (..., n, 1)
    products = left * right
    crossed = (rows * columns).sum((-2, -1), keepdim=True)
    pull = (
        (size - 2) ** 2 * products.sum(-1, keepdim=True)
        + (size - 2) * (products.sum((-2, -1), keepdim=True) - left @ columns - right @ rows)
        - size * rows * columns
        + columns.sum(-2, keepdim=True) * rows
        + rows.sum(-2, keepdim=True) * columns
        - crossed
    )
    scale = 4.0 * size * ((size - 1) * (size - 2) * (size - 3)) ** 2  # of 450 images, more than 64 bits hold
    second_moment = pull.square().sum((-2, -1)) / scale
    return (16 / size * (second_moment - hsic(first, second).square())).clamp_min(0)


def centred(gram: Tensor) -> Tensor:  # (n, n) -> (n, n)
    """HKH with H = I - 11ᵀ/n."""
    rows = gram.mean(dim=0, keepdim=True)
    return gram - rows - gram.mean(dim=1, keepdim=True) + rows.mean()


def _hollow(gram: Tensor) -> Tensor:
    return gram.masked_fill(_diagonal(gram), 0)


def _diagonal(gram: Tensor) -> Tensor:
    return torch.eye(gram.shape[-1], dtype=torch.bool, device=gram.device)
