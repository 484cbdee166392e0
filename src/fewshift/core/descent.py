"""The inner level: gradients and T steps (Eq. 3 and 5; Eq. 9 and 16 with a preconditioner)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from fewshift.core.updates import State, Update
from fewshift.types import TaskParams


@dataclass(frozen=True)
class Trajectory:
    """Where a descent ended, and the loss before each of its steps."""

    params: TaskParams
    losses: Tensor  # (steps,)


def detached(params: TaskParams) -> TaskParams:
    """The same values, cut off from whatever computed them."""
    return {site: param.detach() for site, param in params.items()}


def fresh_leaves(params: TaskParams) -> TaskParams:
    """The same values, detached, with respect to which one can differentiate."""
    return {site: param.detach().requires_grad_() for site, param in params.items()}


def gradients(
    objective: Callable[[TaskParams], Tensor], params: TaskParams, create_graph: bool = False
) -> tuple[Tensor, TaskParams]:
    """(loss, gradients by site); zeros for a site that the objective does not use.

    Without `create_graph` both results are detached and nothing is kept. With it they can be differentiated
    again, with respect to the given `params` where those require gradients. Works under `torch.no_grad`.
    """
    with torch.enable_grad():
        leaves = fresh_leaves(params)
        if create_graph:
            leaves = {site: param if param.requires_grad else leaves[site] for site, param in params.items()}
        loss = objective(leaves)
        wanted = list(leaves.values())
        found = (
            torch.autograd.grad(loss, wanted, create_graph=create_graph, materialize_grads=True)
            if wanted
            else ()
        )
    return loss if create_graph else loss.detach(), dict(zip(leaves, found, strict=True))


def descend(
    objective: Callable[[TaskParams], Tensor], params: TaskParams, update: Update[State], steps: int
) -> Trajectory:
    """`steps` steps from `params`, one graph at a time: memory does not depend on their number.

    The result is detached. Gradients with respect to P, its coefficients or the start come from
    `fewshift.core.metagrad`, not from a graph through the steps.
    """
    return descend_along(partial(gradients, objective), params, update, steps)


def descend_along(
    find: Callable[[TaskParams], tuple[Tensor, TaskParams]],
    params: TaskParams,
    update: Update[State],
    steps: int,
) -> Trajectory:
    """The same with losses and gradients computed elsewhere; each needs to last for one step only."""
    params = detached(params)
    state = update.init(params)
    losses = []
    for _ in range(steps):
        loss, found = find(params)
        losses.append(loss)
        if found:  # rules that step all sites in one call refuse to step none
            with torch.no_grad():
                params, state = update.step(params, found, state)
    return Trajectory(params, torch.stack(losses) if losses else torch.empty(0))


def unroll(
    objective: Callable[[TaskParams], Tensor],
    params: TaskParams,
    update: Update[State],
    steps: int,
    order: Literal[1, 2] = 1,
) -> Trajectory:
    """The same with a graph, for rules whose learned parts enter their steps in ways of their own.

    The result can be differentiated in the start and in the rule's parts. Order 1 takes the inner gradients
    as constants: each step adds to the graph what the rule computes from them and nothing of the network.
    Order 2 is exact, in memory that grows with the steps.
    """
    state, losses = update.init(params), []
    for _ in range(steps):
        seen = detached(params) if order == 1 else params
        loss, found = gradients(objective, seen, create_graph=order == 2)
        params, state = update.step(params, found, state)
        losses.append(loss.detach())
    return Trajectory(params, torch.stack(losses) if losses else torch.empty(0))
