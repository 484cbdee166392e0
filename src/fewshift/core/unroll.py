"""The inner level with a graph: for rules whose learned parts enter their steps in ways of their own.

`core.metagrad` has the exact gradient of preconditioned descent in the memory of one step. Here the graph of
the rule itself is kept over all steps, which is cheap, and the network's graph only at second order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from fewshift.core.descent import Trajectory, detached, gradients
from fewshift.core.updates import State, Update
from fewshift.types import TaskParams


def unroll(
    objective: Callable[[TaskParams], Tensor],
    params: TaskParams,
    update: Update[State],
    steps: int,
    order: Literal[1, 2] = 1,
) -> Trajectory:
    """`steps` steps from `params`; the result can be differentiated in the start and in the rule's parts.

    Order 1 takes the inner gradients as constants: each step adds to the graph what the rule computes from
    them and nothing of the network. Order 2 is exact, in memory that grows with the steps.
    """
    state, losses = update.init(params), []
    for _ in range(steps):
        seen = detached(params) if order == 1 else params
        loss, found = gradients(objective, seen, create_graph=order == 2)
        params, state = update.step(params, found, state)
        losses.append(loss.detach())
    return Trajectory(params, torch.stack(losses) if losses else torch.empty(0))
