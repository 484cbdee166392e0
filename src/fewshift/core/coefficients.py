"""Task coefficients (Eq. 11), how much a task is like each training domain, and what they are learned by."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor


def task_coefficients(logits: Tensor) -> Tensor:  # (k,) -> (k,)
    """Eq. 11: softmax of the dataset classifier's logits; their sigmoid when there is one training domain.

    Theorem 1 assumes coefficients that sum to 1. One sigmoid p does not: P = p·P_1 is positive definite
    still, but its eigenvalues are at least p, not 1, so p is a learned factor on the step size.
    """
    return logits.sigmoid() if logits.shape[-1] == 1 else logits.softmax(dim=-1)


def domain_entropy(logits: Tensor, domain_index: int) -> Tensor:  # (k,), index -> ()
    """Cross-entropy of the task's domain; with one, −log σ(z), as every training task is of that domain."""
    return F.softplus(-logits[0]) if len(logits) == 1 else -logits.log_softmax(dim=-1)[domain_index]


def classifier_loss(
    logits: Tensor, domain_index: int, auxiliary: Tensor, weight: float = 0.1
) -> Tensor:  # (k,), index, (), λ -> ()
    """Eq. 12 for one task: cross-entropy of its domain plus λ times L_aux (Eq. 13).

    `auxiliary` is L_out after adaptation with the blended preconditioner (Eq. 14) as a function of the
    logits; `fewshift.core.metagrad.linearised` makes it from the adjoint's gradient.
    """
    return domain_entropy(logits, domain_index) + weight * auxiliary
