"""TA²-Net's r adapters per site, collapsed into one matrix.

A site with r adapters computes with their mean A = (1/r) Σ_j θ_j, so each gets the gradient G/r of G = ∂L/∂A.
All start at the same values, so by induction all stay equal, to the bit, under any rule that treats
them alike; A is what each of them is. What is left of r:

- plain and preconditioned descent: θ_j ← θ_j − β P G/r, hence A ← A − (β/r) P G. A step divided by r.
- Adadelta is fed G/r, and its rate stays. Written for G it is Adadelta with r²ε in place of ε under the root
  of the gradient's mean square alone: where the gradient is large against r√ε the step hardly knows r, where
  it is small the step is the one of r = 1 divided by r.

No adapter at all (r = 0) adds nothing: not the initial 1e-4 of an adapter that stands still.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import torch
from torch import Tensor

from fewshift.core.updates import Adadelta, Preconditioned
from fewshift.types import Preconditioner, Rates, TaskParams

Counts: TypeAlias = Mapping[str, int]  # r: site -> how many adapters; a site that is not named has one


def with_adapters(params: TaskParams, counts: Counts) -> TaskParams:
    """The parameters without those of sites that have no adapter, which stay frozen."""
    return {site: param for site, param in params.items() if counts.get(site, 1) > 0}


def without_effect(params: TaskParams, counts: Counts) -> TaskParams:
    """The same sites, with zeros where there is no adapter: as if frozen, for what needs all sites.

    Only residual adapters add nothing at zero; the last map must have its one.
    """
    return {s: p if counts.get(s, 1) > 0 else torch.zeros_like(p) for s, p in params.items()}


def shared_rates(rates: Rates, counts: Counts) -> dict[str, float]:
    """β/r at every site, and 0 where there is no adapter."""
    return {site: rate / counts.get(site, 1) if counts.get(site, 1) else 0.0 for site, rate in rates.items()}


def shared(matrices: Mapping[str, Tensor], counts: Counts) -> dict[str, Tensor]:
    """Each site's matrix divided by r, zeros where there is no adapter.

    Descending with P/r is descending with P at a step divided by r, and ∂L/∂P = (1/r) ∂L/∂(P/r): the same map
    takes P to what a task descends with and that task's D back to P's.
    """
    return {
        site: matrix / counts.get(site, 1) if counts.get(site, 1) else torch.zeros_like(matrix)
        for site, matrix in matrices.items()
    }


def collapsed_descent(preconditioner: Preconditioner | None, rates: Rates, counts: Counts) -> Preconditioned:
    """r copies under Eq. 5 with one P: their mean takes 1/r of the step."""
    return Preconditioned(preconditioner, shared_rates(rates, counts))


def collapsed_adadelta(params: TaskParams, rates: Rates, counts: Counts) -> Adadelta:
    """r copies under Adadelta: their mean moves at the full rate, by what 1/r of the gradient says."""
    rates = {site: rate if counts.get(site, 1) else 0.0 for site, rate in rates.items()}
    parts: Preconditioner = {}
    for site, param in params.items():
        eye = torch.eye(len(param), dtype=param.dtype, device=param.device)
        parts[site] = eye / max(counts.get(site, 1), 1)
    return Adadelta(rates, preconditioner=parts)
