"""A preconditioner on the other side: θ ← θ − β G Q, with Q from what a layer reads. Our own.

The paper's P multiplies a gradient (out, in) from the left, so it turns what a layer writes. Its rows are
sums of inputs, and inputs behind a ReLU share one large direction: plain descent moves all images alike along
it. Q, the damped inverse of the inputs' second moment, evens the directions out (it is K-FAC's factor of the
inputs). The support set of the task itself says what it is, so nothing has to be learned.
"""

from __future__ import annotations

import torch
from torch import Tensor

DAMPING = 0.3  # of the mean eigenvalue; on validation tasks 0.3 and 1 did alike


def second_moment(rows: Tensor) -> Tensor:  # (n, m) -> (m, m)
    """C = XᵀX / n."""
    return rows.mT @ rows / len(rows)


def whitener(moment: Tensor, damping: float = DAMPING) -> Tensor:  # (m, m) -> (m, m)
    """Q = c (C + ε tr(C)/m · I)⁻¹, positive definite for ε > 0, with c such that tr(QC) = tr(C).

    So at one rate a step changes what a layer writes about as much as without Q. Of nothing, Q = I.
    """
    trace = moment.trace()
    eye = torch.eye(len(moment), dtype=moment.dtype, device=moment.device)
    level = damping * trace / len(moment)
    damped = torch.where(trace > 0, moment + level * eye, eye)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky_ex(damped).L)
    scale = trace / (inverse * moment).sum()  # both are symmetric, so this is tr(QC)
    return torch.where(trace > 0, scale * inverse, eye)
