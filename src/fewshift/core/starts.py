"""Starting values of the task parameters, one set a domain: a second kind of meta-parameter beside M."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

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

    def of(self, domain: str) -> TaskParams:
        """theta_0 of one domain."""
        if domain not in self.domains:
            raise FewshiftError(
                f"there are no starting values for domain {domain!r}: "
                f"these were trained on {', '.join(self.domains)}"
            )
        return {site: value[self.domains.index(domain)] for site, value in self.values.items()}

    def blend(self, coefficients: Tensor) -> TaskParams:  # (K,) -> site -> (m, n)
        """Blended like P, but by shares: one domain's sigmoid must not shrink theta_0."""
        return blend_sites(coefficients / coefficients.sum(), self.values)

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> DomainStarts:
        """The same on another device, or in another precision."""
        return replace(self, values={s: v.to(device=device, dtype=dtype) for s, v in self.values.items()})


def shared_start(domains: Sequence[str], start: TaskParams) -> DomainStarts:
    """The same starting values for every domain, as in the paper."""
    values = {site: value.detach().expand(len(domains), -1, -1).clone() for site, value in start.items()}
    return DomainStarts(tuple(domains), values)
