"""Step sizes as functions of the step: a resumed run needs no scheduler's state. And the step itself."""

from __future__ import annotations

import math

from torch.optim import Optimizer


def cosine_restarts(rate: float, step: int, period: int) -> float:
    """Cosine annealing from `rate` towards 0 over `period` steps, then from `rate` again.

    The first step (0) has the full rate. The published code sets the rate after each step, and so lags by
    one; that lag is not copied.

    >>> [round(cosine_restarts(0.1, step, 4), 3) for step in range(6)]
    [0.1, 0.085, 0.05, 0.015, 0.1, 0.085]
    """
    return rate * (1 + math.cos(math.pi * (step % period) / period)) / 2


def cosine_doubling(rate: float, step: int, first: int) -> float:
    """Cosine annealing whose periods double: `first` steps, then twice as many, and so on.

    >>> [round(cosine_doubling(0.1, step, 2), 3) for step in range(7)]
    [0.1, 0.05, 0.1, 0.085, 0.05, 0.015, 0.1]
    """
    period = first
    while step >= period:
        step, period = step - period, 2 * period
    return cosine_restarts(rate, step, period)


def take_step(optimizer: Optimizer, rate: float) -> None:
    """Move all parameters along their gradients with this step size; the gradients are dropped."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
