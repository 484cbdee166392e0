"""The few dimensions in which descent on a handful of features takes place.

Losses know the mapped features Z (n, d) by their inner products alone, so the rows of their gradient are
blends of those of Z, and descent stays in the space of Z_0's rows, or in that and the directions of a P that
has few. In an orthonormal basis of it, m numbers take the place of d: 75 images on a map of 1280 channels
need 75 numbers, or 395 with a `low_rank` P.
"""

from __future__ import annotations

import torch
from torch import Tensor

PROBES = 8  # random vectors that look for P's directions: an eighth of the channels
LARGE = 4 / 3  # a space of more than three quarters of the channels saves nothing


def space_pays(mapped: Tensor, matrix: Tensor | None, steps: int) -> bool:  # (n, d), (d, d)
    """Whether finding that space and P in it is less work than it saves: P times n vectors in every step."""
    count, dim = mapped.shape
    if matrix is None:
        return True
    size = count + 2 * (dim // PROBES)
    finding = 8 * dim * size**2 + 2 * dim**2 * (size + dim // PROBES)  # a QR runs at half a product's speed
    return finding < steps * 2 * count * (dim**2 - size**2)


def closed_space(mapped: Tensor, matrix: Tensor | None) -> Tensor | None:  # (n, d), (d, d) -> (d, m)
    """An orthonormal basis of a space that holds these rows and that P does not leave; None if it is large.

    A `low_rank` P, blended or not, is a multiple of I and a part of few directions: random vectors and what P
    makes of them span those. For a P of another kind they do not, which is noticed.
    """
    dim = mapped.shape[1]
    rows = mapped
    if matrix is not None:
        chance = torch.Generator().manual_seed(0)
        probes = torch.randn(dim // PROBES, dim, generator=chance).to(mapped)
        rows = torch.cat([mapped, probes, probes @ matrix.mT])
    if len(rows) * LARGE > dim:
        return None
    basis: Tensor = torch.linalg.qr(rows.mT).Q
    if matrix is not None:
        inside = basis @ torch.randn(basis.shape[1], 4, generator=chance).to(mapped)
        reached = matrix @ inside
        left = reached - basis @ (basis.mT @ reached)
        if left.norm() > reached.norm() * torch.finfo(mapped.dtype).eps ** 0.75:
            return None
    return basis
