"""Starting values of the task parameters, one set per domain: a second kind of meta-parameter beside M."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import Tensor

from fewshift.core.precond import blend_sites
from fewshift.errors import FewshiftError
from fewshift.types import TaskParams


@dataclass(frozen=True)
class DomainStarts:
    """theta_0 of every domain."""

    domains: tuple[str, ...]
    values: Mapping[str, Tensor]  # site -> (K, m, n)
    base: TaskParams | None = None  # what all domains share, site -> (m, n); None: TSA's values

    def shapes(self) -> dict[str, torch.Size]:  # site -> (m, n)
        """The shape of each site's value."""
        return {site: value.shape[1:] for site, value in self.values.items()}

    def blend(self, coefficients: Tensor) -> TaskParams:  # (K,) -> site -> (m, n)
        """Blended like P, but by shares: one domain's sigmoid must not shrink theta_0."""
        return blend_sites(shares_of(coefficients), self.values)

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> DomainStarts:
        """The same on another device, or in another precision."""
        base = self.base and {s: v.to(device=device, dtype=dtype) for s, v in self.base.items()}
        values = {s: v.to(device=device, dtype=dtype) for s, v in self.values.items()}
        return replace(self, values=values, base=base)


@dataclass(frozen=True)
class LowRankStarts:
    """theta_0 of every domain as a shared value and a few directions off it: theta_0^k = theta_0 + U_k V_k.

    Our own design: eight maps of 1280 x 1280 are 26 MB even at 16 bits, at rank 16 they are 0.7 MB.
    """

    domains: tuple[str, ...]
    base: TaskParams  # site -> (m, n)
    left: Mapping[str, Tensor]  # U: site -> (K, m, r)
    right: Mapping[str, Tensor]  # V: site -> (K, r, n)

    def __post_init__(self) -> None:
        for site, left in self.left.items():
            right = self.right[site]
            wanted = (len(self.domains), *self.base[site].shape)
            found = (*left.shape[:2], right.shape[-1])
            if found != wanted or right.shape[0] != len(self.domains) or left.shape[2] != right.shape[1]:
                raise FewshiftError(
                    f"the starting values of {site} are of shapes {tuple(left.shape)} and "
                    f"{tuple(right.shape)}, which do not multiply to {wanted}"
                )

    @property
    def values(self) -> dict[str, Tensor]:  # site -> (K, m, n)
        """All of theta_0^k, multiplied out."""
        return {site: self.base[site] + left @ self.right[site] for site, left in self.left.items()}

    def shapes(self) -> dict[str, torch.Size]:  # site -> (m, n)
        """The shape of each site's value."""
        return {site: self.base[site].shape for site in self.left}

    def blend(self, coefficients: Tensor) -> TaskParams:  # (K,) -> site -> (m, n)
        """The same blend by shares as of whole values, without multiplying them out."""
        shares = shares_of(coefficients)
        return {site: self._blended(site, shares.to(left.dtype)) for site, left in self.left.items()}

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> LowRankStarts:
        """The same on another device, or in another precision."""
        base, left, right = (
            {site: tensor.to(device=device, dtype=dtype) for site, tensor in part.items()}
            for part in (self.base, self.left, self.right)
        )
        return replace(self, base=base, left=left, right=right)

    def _blended(self, site: str, shares: Tensor) -> Tensor:
        left = (self.left[site] * shares[:, None, None]).permute(1, 0, 2).flatten(1)  # (m, K r)
        return torch.addmm(self.base[site], left, self.right[site].flatten(0, 1))


Starts: TypeAlias = DomainStarts | LowRankStarts


def shares_of(coefficients: Tensor) -> Tensor:  # (K,) -> (K,)
    """p_k / Σ p. One domain has all of it, even where its sigmoid underflows to 0 and 0 / 0 would be NaN."""
    return coefficients / coefficients.sum() if len(coefficients) > 1 else 1 + 0 * coefficients


def part_way(base: TaskParams, blended: TaskParams, share: float) -> TaskParams:
    """θ_0 + share · (Σ p_k θ_0^k − θ_0): less of the domains' own where a task is like none of them."""
    if share == 1.0:
        return blended
    return {site: torch.lerp(base[site], value, share) for site, value in blended.items()}


def task_start(
    usual: TaskParams, starts: Starts | None, coefficients: Tensor, share: float, common: float = 1.0
) -> TaskParams:
    """Where a task starts: θ + common · (θ_0 − θ) + share · (Σ p_k θ_0^k − θ_0), with TSA's θ, or at θ.

    θ_0 is what the domains share. Both were learned from training classes, and less of each may suit others.
    """
    if starts is None:
        return usual
    base = usual | (starts.base or {})
    found = base | part_way(base, starts.blend(coefficients), share)
    if common == 1.0:
        return found
    return {site: value - (1 - common) * (base[site] - usual[site]) for site, value in found.items()}


def shortened(starts: DomainStarts, base: TaskParams, rank: int) -> LowRankStarts:
    """The best approximation of each domain's own part at this rank, or exactly where a site is smaller."""
    left, right = {}, {}
    for site, values in starts.values.items():
        u, s, v = torch.linalg.svd((values - base[site]).double(), full_matrices=False)
        kept = min(rank, s.shape[-1])
        root = s[:, :kept].sqrt()
        left[site] = (u[..., :kept] * root[:, None, :]).to(values.dtype)
        right[site] = (root[..., None] * v[:, :kept]).to(values.dtype)
    return LowRankStarts(starts.domains, dict(base), left, right)
