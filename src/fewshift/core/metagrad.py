"""Exact gradients of the outer loss through T inner steps, in the memory of one step.

With g_t and H_t the gradient and Hessian of L_in at theta_t, the inner level is
theta_{t+1} = theta_t − β P g_t. Its adjoint λ, the gradient of L_out with respect to theta_t, goes backwards:

    λ_T = ∇L_out(theta_T)        D = ∂L_out/∂P = −Σ_t β λ_{t+1} g_tᵀ        λ_t = λ_{t+1} − H_t (β Pᵀ λ_{t+1})

so only the thetas are kept, and one Hessian-vector product at a time needs a graph. (Pᵀ, not P: the two are
the same for every symmetric design, but not for `free`.) Order 1 leaves H_t out, λ_t = λ_T. P enters each
step linearly, so D does not degenerate, and it is close while rate · P · curvature stays well under 1; where
steps are large it may point elsewhere. D is minus the product of the query's and the support's gradients: P
grows where the two agree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fewshift.core.descent import detached, fresh_leaves, gradients
from fewshift.core.losses import Scored
from fewshift.core.updates import Preconditioned
from fewshift.types import Design, Preconditioner, Rates, TaskParams


@dataclass(frozen=True)
class MetaGradient:
    """The outer loss of one task and its gradients, all detached."""

    loss: Tensor  # () L_out(theta_T)
    preconditioner: Preconditioner  # D: site -> (m, m)
    start: TaskParams  # ∂L_out/∂theta_0: exact at order 2, λ_T at order 1
    final: TaskParams  # theta_T
    inner_losses: Tensor  # (steps,) before each step
    accuracy: Tensor | None = None  # () on the query set, when `outer` tells
    usable: Tensor | None = None  # () bool, once looked at: where false, the gradients have been set to zero


def meta_gradient(
    inner: Callable[[TaskParams], Tensor],
    outer: Callable[[TaskParams], Tensor | Scored],
    start: TaskParams,
    preconditioner: Preconditioner | None,
    rates: Rates,
    steps: int,
    order: Literal[1, 2] = 1,
    *,
    exact_start: bool = True,
) -> MetaGradient:
    """Algorithms 1 and 2 for one task: L_out after `steps` steps of Eq. 9 or 14, with ∂L/∂P and ∂L/∂theta_0.

    Gradients with respect to roots, coefficients and starting values are products with these:
    `root_gradients`, `coefficient_gradient`. No preconditioner means P = I. Order 2 needs an `inner` that can
    be differentiated twice; `exact_start=False` saves the one Hessian-vector product of its `steps` that only
    `start` needs, which is then λ_1. (Algorithm 1 cites Eq. 3 for the inner steps and, like Algorithm 3, runs
    them site by site; Eq. 9 with all sites moving together is what must be meant.)
    """
    if order not in (1, 2):
        raise ValueError(f"order is 1 or 2, not {order}")
    rule = Preconditioned(preconditioner, rates)
    params = detached(start)
    visited: list[tuple[TaskParams, TaskParams]] = []  # theta_t and g_t, for order 2
    summed = {site: torch.zeros_like(param) for site, param in params.items()}
    losses = []
    for _ in range(steps):
        loss, found = gradients(inner, params)
        losses.append(loss)
        if order == 2:
            visited.append((params, found))
        else:
            summed = {site: summed[site] + found[site] for site in summed}
        with torch.no_grad():
            params = rule.moved(params, found)

    outer_loss, accuracy, adjoint = _outer(outer, params)
    with torch.no_grad():
        if order == 1:
            pulls = {site: -rates[site] * (adjoint[site] @ summed[site].mT) for site in params}
        else:
            pulls, adjoint = _backwards(inner, visited, adjoint, preconditioner, rates, exact_start)
    return MetaGradient(
        loss=outer_loss,
        preconditioner=pulls,
        start=adjoint,
        final=params,
        inner_losses=torch.stack(losses) if losses else torch.empty(0),
        accuracy=accuracy,
    )


def root_gradients(design: Design, roots: Tensor, pulls: Tensor) -> Tensor:  # (..., r, m), (..., m, m)
    """∂L/∂M (..., r, m) from D = ∂L/∂P, by the design's own derivative; M(D + Dᵀ) for `gram`.

    Linear in D: sum D over the tasks of a domain first and call this once per update.
    """
    with torch.enable_grad():
        leaf = roots.detach().requires_grad_()
        matrices = design(leaf)
    if not matrices.requires_grad:
        return torch.zeros_like(roots)
    return torch.autograd.grad(matrices, leaf, pulls)[0]


def coefficient_gradient(pulls: Mapping[str, Tensor], stacks: Mapping[str, Tensor]) -> Tensor:  # -> (K,)
    """∂L/∂p_k = Σ_l ⟨D^l, P_k^l⟩, with the domains' matrices site -> (K, m, m)."""
    parts = [torch.einsum("ij,kij->k", pull, stacks[site].detach()) for site, pull in pulls.items()]
    return torch.stack(parts).sum(dim=0)


def linearised(loss: Tensor, point: Tensor, gradient: Tensor) -> Tensor:
    """A scalar with this value and this gradient at `point`, through which autograd continues.

    It carries the adjoint's ∂L/∂p into the network that made p.
    """
    return loss.detach() + ((point - point.detach()) * gradient.detach()).sum()


def _outer(
    outer: Callable[[TaskParams], Tensor | Scored], params: TaskParams
) -> tuple[Tensor, Tensor | None, TaskParams]:
    with torch.enable_grad():
        leaves = fresh_leaves(params)
        result = outer(leaves)
        loss, accuracy = result if isinstance(result, Scored) else (result, None)
        found = torch.autograd.grad(loss, list(leaves.values()), materialize_grads=True)
    return loss.detach(), accuracy, dict(zip(leaves, found, strict=True))


def _backwards(
    inner: Callable[[TaskParams], Tensor],
    visited: list[tuple[TaskParams, TaskParams]],
    adjoint: TaskParams,
    preconditioner: Preconditioner | None,
    rates: Rates,
    exact_start: bool,
) -> tuple[Preconditioner, TaskParams]:
    pulls = {site: param.new_zeros(len(param), len(param)) for site, param in adjoint.items()}
    while visited:
        params, found = visited.pop()
        pulls = {site: pulls[site] - rates[site] * (adjoint[site] @ found[site].mT) for site in adjoint}
        if visited or exact_start:
            bent = (
                adjoint
                if preconditioner is None
                else {s: preconditioner[s].mT @ a for s, a in adjoint.items()}
            )
            direction = {site: rates[site] * value for site, value in bent.items()}
            product = _hessian_product(inner, params, direction)
            adjoint = {site: adjoint[site] - product[site] for site in adjoint}
    return pulls, adjoint


def _hessian_product(
    objective: Callable[[TaskParams], Tensor], params: TaskParams, direction: TaskParams
) -> TaskParams:
    """H·direction, by differentiating the gradient once more."""
    with torch.enable_grad():
        leaves = fresh_leaves(params)
        _, found = gradients(objective, leaves, create_graph=True)
        curved = [site for site in leaves if found[site].requires_grad]
        if not curved:
            return {site: torch.zeros_like(param) for site, param in params.items()}
        product = torch.autograd.grad(
            [found[site] for site in curved],
            list(leaves.values()),
            [direction[site] for site in curved],
            materialize_grads=True,
        )
    return dict(zip(leaves, product, strict=True))
