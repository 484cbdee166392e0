"""Preconditioner designs (roots M -> matrices P), one function each, and the domains' preconditioners.

Designs act on the last two dimensions, so the K domains of a site need no loop. P has the size of a site's
output channels: the update is P times the gradient seen as (out, in). The paper writes theta as square
(section on DSPs), which fails for the three stage-entry convolutions; its own effective-rank tables have the
output side.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from fewshift.errors import FewshiftError
from fewshift.types import Design, Preconditioner

LARGEST = 10.0  # eigenvalues of a `bounded` P stay below


def gram(roots: Tensor) -> Tensor:  # (..., r, m) -> (..., m, m)
    """Eq. 8: MᵀM + I, the paper's design; eigenvalues at least 1 (Lemma 1)."""
    return gram_only(roots) + _eye(roots)


def gram_only(roots: Tensor) -> Tensor:  # (..., r, m) -> (..., m, m)
    """MᵀM: no eigenvalue below 0, but nothing keeps it off 0."""
    return roots.mT @ roots


def cholesky(roots: Tensor) -> Tensor:  # (..., m, m) -> (..., m, m)
    """LLᵀ with L lower triangular and of positive diagonal, L = strict_tril(A) + diag(softplus(diag A)).

    The paper asks for a positive diagonal and does not say how; softplus is our choice.
    """
    lower = _lower(roots)
    return lower @ lower.mT


def cholesky_identity(roots: Tensor) -> Tensor:  # (..., m, m) -> (..., m, m)
    """LLᵀ + I, with L as in `cholesky`."""
    return cholesky(roots) + _eye(roots)


def free(roots: Tensor) -> Tensor:  # (..., m, m) -> (..., m, m)
    """M itself: neither symmetric nor positive definite, the paper's "without a PD constraint"."""
    return roots


def identity(roots: Tensor) -> Tensor:  # (..., r, m) -> (..., m, m)
    """The identity for every root: plain gradient descent."""
    return _eye(roots).expand(*roots.shape[:-2], -1, -1)


def low_rank(roots: Tensor) -> Tensor:  # (..., r, m) -> (..., m, m)
    """RᵀR + I with R of r rows: `gram` with at most r directions above 1, r/m of its size.

    Our own design: the paper's effective ranks (3 to 12 of 512 for the last map) ask for no more.
    """
    return gram(roots)


def bounded(roots: Tensor) -> Tensor:  # (..., r, m) -> (..., m, m)
    """I + Rᵀ(I + RRᵀ/(c − 1))⁻¹R: where `low_rank` has the eigenvalue 1 + s, 1 + s/(1 + s/(c − 1)) < c.

    Our own design. Five training steps bear a P on which forty test steps overshoot, so a long run lets its
    largest eigenvalue grow without end; here it cannot pass c = `LARGEST`.
    """
    rows = roots.shape[-2]
    eye = torch.eye(rows, dtype=roots.dtype, device=roots.device)
    lower = torch.linalg.cholesky_ex(eye + roots @ roots.mT / (LARGEST - 1)).L
    return gram(torch.linalg.solve_triangular(lower, roots, upper=False))


DESIGNS: dict[str, Design] = {
    "gram": gram,
    "gram_only": gram_only,
    "cholesky": cholesky,
    "cholesky_identity": cholesky_identity,
    "free": free,
    "identity": identity,
    "low_rank": low_rank,
    "bounded": bounded,
}
FEW_ROWS = ("low_rank", "bounded")  # designs whose roots have fewer rows than columns


def design_named(name: str) -> Design:
    """The design of this name."""
    if name not in DESIGNS:
        raise FewshiftError(f"there is no preconditioner design {name!r}: choose one of {', '.join(DESIGNS)}")
    return DESIGNS[name]


def default_rank(size: int) -> int:
    """Rows of a root of `FEW_ROWS` when none are asked for: a sixteenth of the channels, four at least."""
    return min(size, max(4, size // 16))


def init_root(
    design: str,
    size: int,
    *,
    scale: float = 0.1,
    rank: int | None = None,
    generator: torch.Generator | None = None,
    dtype: torch.dtype = torch.float32,
) -> Tensor:  # -> (r, m)
    """Eq. 7: the root a design starts from, `scale`·I for all square ones (for `cholesky*` it is L that is).

    `free` starts at −I with `scale=-1`, as in the paper's motivating figure. `low_rank` and `bounded` cannot
    start at 0, a saddle where the gradient R(D + Dᵀ) vanishes, and 0.1·I would favour the first r channels:
    they get r random orthonormal rows times scale·sqrt(m/r). Every direction v then has E‖Rv‖² = scale², as
    with `gram`, so P has the same mean eigenvalue and a direction that the outer loss wants grows as fast.
    `identity` keeps one row of zeros.
    """
    design_named(design)
    eye = torch.eye(size, dtype=torch.float64)
    if design == "identity":
        root = torch.zeros(1, size, dtype=torch.float64)
    elif design in FEW_ROWS:
        rank = default_rank(size) if rank is None else rank
        if not 1 <= rank <= size:
            raise FewshiftError(f"rank {rank} is impossible for {size} channels: choose one from 1 to {size}")
        columns = torch.linalg.qr(
            torch.randn(size, rank, generator=generator, dtype=torch.float64, device=_home(generator))
        ).Q
        root = columns.T.cpu() * scale * math.sqrt(size / rank)
    elif design.startswith("cholesky"):
        if scale <= 0:
            raise FewshiftError(f"a {design} root needs a positive scale, not {scale}")
        root = eye * math.log(math.expm1(scale))
    else:
        root = eye * scale
    return root.to(dtype)


def blend(coefficients: Tensor, matrices: Tensor) -> Tensor:  # (k,), (k, m, n) -> (m, n)
    """Eq. 15: sum_k p_k P_k."""
    return torch.einsum("k,kij->ij", coefficients.to(matrices.dtype), matrices)


def part_of(matrices: Preconditioner, share: float) -> Preconditioner:
    """(1 − share)·I + share·P at every site: positive definite where P is, and plain descent at share 0."""
    if share == 1.0:
        return matrices
    eyes = {site: torch.eye(len(p), dtype=p.dtype, device=p.device) for site, p in matrices.items()}
    return {site: torch.lerp(eyes[site], p, share) for site, p in matrices.items()}


def blend_sites(coefficients: Tensor, matrices: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Eq. 15 at every site, from matrices that were built once for many tasks."""
    return {site: blend(coefficients, stack) for site, stack in matrices.items()}


@dataclass(frozen=True)
class DomainPreconditioners:
    """M_1 .. M_K and the design that makes P_1 .. P_K of them."""

    domains: tuple[str, ...]
    roots: Mapping[str, Tensor]  # site -> (K, r, m)
    design: str = "gram"

    def __post_init__(self) -> None:
        design_named(self.design)
        for site, root in self.roots.items():
            if root.ndim != 3 or root.shape[0] != len(self.domains):
                raise FewshiftError(
                    f"the roots of site {site!r} have shape {tuple(root.shape)}, "
                    f"not ({len(self.domains)}, rows, channels) for the {len(self.domains)} domains"
                )

    def matrices(self) -> dict[str, Tensor]:  # site -> (K, m, m)
        """Eq. 8 for all domains and sites; build once when many tasks follow, then `blend_sites`."""
        return {site: design_named(self.design)(root) for site, root in self.roots.items()}

    def index(self, domain: str) -> int:
        """The place of a domain, that is its coefficient's and its label's for the dataset classifier."""
        if domain not in self.domains:
            raise FewshiftError(
                f"there are no preconditioners for domain {domain!r}: "
                f"these were trained on {', '.join(self.domains)}"
            )
        return self.domains.index(domain)

    def roots_of(self, domain: str) -> dict[str, Tensor]:  # site -> (r, m)
        """M of one domain."""
        return {site: root[self.index(domain)] for site, root in self.roots.items()}

    def of(self, domain: str) -> Preconditioner:
        """P of one domain, as in Eq. 9."""
        return {site: design_named(self.design)(root) for site, root in self.roots_of(domain).items()}

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> DomainPreconditioners:
        """The same on another device, or in another precision."""
        return replace(self, roots={s: r.to(device=device, dtype=dtype) for s, r in self.roots.items()})


def initial_preconditioners(
    domains: Sequence[str],
    sizes: Mapping[str, int],
    design: str = "gram",
    *,
    scale: float = 0.1,
    rank: int | None = None,
    generator: torch.Generator | None = None,
    dtype: torch.dtype = torch.float32,
) -> DomainPreconditioners:
    """Untrained preconditioners for sites of these sizes (output channels), the same for every domain."""
    roots = {
        site: init_root(design, size, scale=scale, rank=rank, generator=generator, dtype=dtype)
        .expand(len(domains), -1, -1)
        .clone()
        for site, size in sizes.items()
    }
    return DomainPreconditioners(tuple(domains), roots, design)


def _lower(roots: Tensor) -> Tensor:
    return roots.tril(-1) + torch.diag_embed(F.softplus(roots.diagonal(dim1=-2, dim2=-1)))


def _eye(roots: Tensor) -> Tensor:
    return torch.eye(roots.shape[-1], dtype=roots.dtype, device=roots.device)


def _home(generator: torch.Generator | None) -> torch.device:
    return torch.device("cpu") if generator is None else generator.device
