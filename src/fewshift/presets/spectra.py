"""Preconditioners in numbers: the paper's tables of effective ranks and of non-PD rates."""

from __future__ import annotations

import torch
from torch import Tensor

from fewshift.core.precond import DomainPreconditioners
from fewshift.core.spectrum import effective_rank, largest_eigenvalue, non_pd_rate

WITH_IDENTITY = ("gram", "cholesky_identity", "low_rank", "bounded")  # their learned part is P − I


def learned_part(learned: DomainPreconditioners) -> dict[str, Tensor]:  # site -> (K, m, m)
    """P without the identity that a design adds: what the paper's ranks are of."""
    matrices = learned.matrices()
    if learned.design not in WITH_IDENTITY:
        return matrices
    return {site: matrix - torch.eye(matrix.shape[-1]).to(matrix) for site, matrix in matrices.items()}


def spectrum_table(learned: DomainPreconditioners) -> str:
    """In Markdown: effective ranks by site and domain, non-PD rates and largest eigenvalues by domain."""
    matrices = learned.matrices()
    rows = [["site", *learned.domains, "full rank"], ["---"] + ["---:"] * (len(learned.domains) + 1)]
    for site, matrix in learned_part(learned).items():
        ranks = [f"{rank:.2f}" for rank in effective_rank(matrix).tolist()]
        rows.append([site, *ranks, str(matrix.shape[-1])])
    rates = [non_pd_rate(learned.of(domain)) for domain in learned.domains]
    rows.append(["not positive definite", *(f"{100 * rate:.1f} %" for rate in rates), ""])
    largest = torch.stack([largest_eigenvalue(matrix) for matrix in matrices.values()]).amax(dim=0)
    rows.append(["largest eigenvalue", *(f"{value:.3g}" for value in largest.tolist()), ""])
    lines = [f"| {' | '.join(row)} |" for row in rows]
    mean = sum(rates) / len(rates)
    head = f"Design `{learned.design}`; {100 * mean:.1f} % of all matrices are not positive definite."
    return "\n".join([head, "", *lines, ""])
