"""Task coefficients (Eq. 11): how much a task is like each training domain."""

from __future__ import annotations

from torch import Tensor


def task_coefficients(logits: Tensor) -> Tensor:  # (k,) -> (k,)
    """Eq. 11: softmax of the dataset classifier's logits; their sigmoid when there is one training domain.

    Theorem 1 assumes coefficients that sum to 1. One sigmoid p does not: P = p·P_1 is positive definite
    still, but its eigenvalues are at least p, not 1, so p is a learned factor on the step size.
    """
    return logits.sigmoid() if logits.shape[-1] == 1 else logits.softmax(dim=-1)
