"""Meta-gradients the plain way: one graph through all inner steps, for comparison with the adjoint."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from tiny_problem import SITES, Problem, random_like
from torch import Tensor

from fewshift.core.losses import inner_objective, outer_objective
from fewshift.core.precond import FEW_ROWS
from fewshift.core.updates import site_rates
from fewshift.types import Preconditioner, TaskParams

RATES = site_rates(SITES, adapters=0.03, last=0.02)  # larger ones make tasks with cosines times ten chaotic
STEPS = 5


@dataclass(frozen=True)
class Objectives:
    inner: Callable[[TaskParams], Tensor]
    outer: Callable[[TaskParams], Tensor]


def objectives(problem: Problem) -> Objectives:
    return Objectives(
        inner_objective(problem.features, problem.task), outer_objective(problem.features, problem.episode)
    )


def unrolled(
    of: Objectives, start: TaskParams, matrices: Preconditioner | None, steps: int, order: int
) -> Tensor:
    """L_out as one graph through all steps; at order 1 the inner gradients are constants."""
    params = dict(start)
    for _ in range(steps):
        leaves = {s: p if p.requires_grad else p.requires_grad_() for s, p in params.items()}
        found = torch.autograd.grad(of.inner(leaves), list(leaves.values()), create_graph=True)
        for (site, param), gradient in zip(leaves.items(), found, strict=True):
            moved = gradient.detach() if order == 1 else gradient
            if matrices is not None:
                moved = matrices[site] @ moved
            params[site] = param - RATES[site] * moved
    return of.outer(params)


def random_roots(seed: int, name: str, domains: int | None = None) -> dict[str, Tensor]:
    shapes = {s: torch.empty(2 if name in FEW_ROWS else m, m).double() for s, m in SITES.items()}
    if domains is not None:
        shapes = {s: shape.expand(domains, -1, -1) for s, shape in shapes.items()}
    base = random_like(shapes, seed)
    return {s: 0.5 * root + (torch.eye(SITES[s]) if name == "free" else 0) for s, root in base.items()}


def leaf(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {s: t.detach().clone().requires_grad_() for s, t in tensors.items()}


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float = 1e-10) -> None:
    assert found.keys() == expected.keys()
    for site in expected:
        torch.testing.assert_close(found[site], expected[site], rtol=tolerance, atol=tolerance)


def spread(tensors: dict[str, Tensor]) -> float:
    return max(float(t.abs().max()) for t in tensors.values())
