"""GAP: the singular values of a kernel's gradient, rescaled by learned factors (Kang et al., CVPR 2023).

A kernel's gradient, unfolded to G of shape (outputs, inputs·k·k), has singular vectors U. GAP steps along
P·G with P = U·diag(softplus(m))·Uᵀ, that is, it multiplies the i-th largest singular value by softplus(m_i).
U are also the eigenvectors of G·Gᵀ, which is small: the same step without a singular value decomposition.
Approximate GAP leaves the rotation out and scales the rows (or columns) of G themselves. Confirmed from code
(Suhyun777/CVPR23-GAP): U carries no gradient, softplus has beta 2, m starts at 0.928.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from fewshift.core.updates import Memoryless
from fewshift.types import TaskParams

START = 0.928  # of m: softplus is 1.0006 there, so that training begins at plain descent

Basis: TypeAlias = Callable[[Sequence[Tensor]], list[Tensor]]  # matrices (m, n) -> vectors of the short side


def factors(logits: Tensor) -> Tensor:  # (r,) -> (r,)
    """What singular values are multiplied by: always positive."""
    return F.softplus(logits, beta=2)


def unfolded(gradient: Tensor) -> Tensor:  # (out, in, k, k) -> (out, in·k·k)
    """A kernel's gradient as a matrix."""
    return gradient.flatten(1)


def by_svd(matrices: Sequence[Tensor]) -> list[Tensor]:
    """Singular vectors of the short side, from the largest singular value down: the published way."""
    found = []
    for matrix in matrices:
        left, _, right = torch.linalg.svd(_usable(matrix), full_matrices=False)
        found.append(left if _is_wide(matrix) else right.mT)
    return found


def by_eigenvectors(matrices: Sequence[Tensor]) -> list[Tensor]:
    """The same vectors from the Gram matrices of the short side; matrices of one size go together."""
    grams = [m @ m.mT if _is_wide(m) else m.mT @ m for m in map(_of_size_one, map(_usable, matrices))]
    found: list[Tensor] = list(grams)
    for size in dict.fromkeys(len(gram) for gram in grams):
        places = [place for place, gram in enumerate(grams) if len(gram) == size]
        vectors = _eigenvectors(torch.stack([grams[place] for place in places])).flip(-1)
        for place, basis in zip(places, vectors, strict=True):
            found[place] = basis
    return found


def rescaled(matrix: Tensor, basis: Tensor, scales: Tensor) -> Tensor:  # (m, n), (r, r), (r,) -> (m, n)
    """The matrix with its i-th singular value times the i-th scale; `basis` are vectors of the short side.

    The derivative holds the left vectors U constant, as published, also where `basis` are the right ones: a
    tall matrix then moves the result by U·diag(s)·Uᵀ, which says the same of the value and not of its slope.
    """
    if _is_wide(matrix):
        return (basis * scales) @ (basis.mT @ matrix)
    still = matrix.detach()
    reached = still @ basis  # the i-th left vector times the i-th singular value
    moved = (reached * scales) @ basis.mT
    if not matrix.requires_grad:
        return moved
    left = F.normalize(reached, dim=0)
    return moved + (left * scales.detach()) @ (left.mT @ (matrix - still))


@dataclass(frozen=True)
class GradientAdaptive(Memoryless):
    """θ ← θ − α·P(G)·G at kernels, plain descent elsewhere."""

    logits: Mapping[str, Tensor]  # m: kernel -> (r,), r its short side
    rate: float
    basis: Basis = by_eigenvectors

    def moved(self, params: TaskParams, gradients: TaskParams) -> TaskParams:
        """The parameters after one step."""
        sites = [site for site in params if site in self.logits]
        matrices = [unfolded(gradients[site]) for site in sites]
        with torch.no_grad():
            bases = self.basis([matrix.detach() for matrix in matrices])
        moves = dict(gradients)
        for site, matrix, basis in zip(sites, matrices, bases, strict=True):
            moves[site] = rescaled(matrix, basis, factors(self.logits[site])).view_as(gradients[site])
        return {site: param - self.rate * moves[site] for site, param in params.items()}


@dataclass(frozen=True)
class DiagonalAdaptive(Memoryless):
    """Approximate GAP: θ ← θ − α·diag(softplus(m))·G, on the short side of G; plain descent elsewhere."""

    logits: Mapping[str, Tensor]
    rate: float

    def moved(self, params: TaskParams, gradients: TaskParams) -> TaskParams:
        """The parameters after one step."""
        moved = {}
        for site, param in params.items():
            move = gradients[site]
            if site in self.logits:
                matrix, scales = unfolded(move), factors(self.logits[site])
                scaled = scales[:, None] * matrix if _is_wide(matrix) else matrix * scales
                move = scaled.view_as(move)
            moved[site] = param - self.rate * move
        return moved


def short_side(kernel: Tensor) -> int:
    """How many singular values a kernel's gradient has."""
    return min(unfolded(kernel).shape)


def _is_wide(matrix: Tensor) -> bool:
    return matrix.shape[0] <= matrix.shape[1]


def _usable(matrix: Tensor) -> Tensor:
    """Solvers refuse what is not finite; the product with the gradient itself still shows it."""
    return torch.nan_to_num(matrix, 0.0, 0.0, 0.0)


def _of_size_one(matrix: Tensor) -> Tensor:
    """The matrix times a number, so that the squares of small gradients do not vanish; its vectors stay."""
    return matrix / matrix.abs().amax().clamp_min(torch.finfo(matrix.dtype).tiny)


def _eigenvectors(grams: Tensor) -> Tensor:  # (n, r, r) -> (n, r, r), the smallest value's first
    """GPU solvers now and then do not converge in single precision; the CPU's do, in double."""
    try:
        _, vectors = torch.linalg.eigh(grams)
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined] # documented, yet not among its exports
        _, vectors = torch.linalg.eigh(grams.double().cpu())
    return cast(Tensor, vectors.to(grams))
