"""Multinomial logistic regression to its optimum, by Newton's method in double precision."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fewshift.core.centroids import membership

NEWTON_STEPS = 100
TOLERANCE = 1e-9  # of every entry of the gradient


class LinearHead(NamedTuple):
    """Logits are `features @ weight.T + bias`."""

    weight: Tensor  # (way, d)
    bias: Tensor  # (way,)

    def __call__(self, features: Tensor) -> Tensor:  # (n, d) -> (n, way)
        """The logits."""
        return F.linear(features, self.weight, self.bias)


def fit_logistic(
    features: Tensor, labels: Tensor, way: int, strength: float = 1.0
) -> LinearHead:  # (n, d), (n,)
    """The head with the least mean cross-entropy plus ‖weight‖² / (2·strength·n).

    This is scikit-learn's loss, whose C is `strength`, over C·n. Newton's method, each direction by conjugate
    gradients on the Hessian, which is never formed. The loss is strictly convex in the weight; the bias,
    which is not penalised, is found up to a constant that stays 0 in the mean. Features so large that
    rounding hides the way down end at the best point before.
    """
    values = F.pad(features.detach().double(), (0, 1), value=1.0)  # the last column carries the bias
    wanted = membership(labels, way, values.dtype)
    penalty = values.new_full((values.shape[1],), 1 / (strength * len(values)))
    penalty[-1] = 0
    head = values.new_zeros(way, values.shape[1])
    for _ in range(NEWTON_STEPS):
        shares = (values @ head.T).softmax(dim=1)
        gradient = (shares - wanted).T @ values / len(values) + penalty * head
        if float(gradient.abs().max()) <= TOLERANCE:
            break
        direction = _newton_direction(values, shares, penalty, gradient)
        reached = _along(head, direction, gradient, values, labels, penalty)
        if reached is None:  # rounding hides all that is left to gain; the same search would fail again
            break
        head = reached
    weight, bias = head[:, :-1], head[:, -1]
    return LinearHead(weight.to(features.dtype).contiguous(), bias.to(features.dtype).contiguous())


def _newton_direction(values: Tensor, shares: Tensor, penalty: Tensor, gradient: Tensor) -> Tensor:
    """−H⁻¹·gradient by conjugate gradients, the closer the nearer the optimum is."""

    def curved(change: Tensor) -> Tensor:  # (way, d) -> H·change
        moved = shares * (values @ change.T)
        moved = moved - shares * moved.sum(dim=1, keepdim=True)
        return moved.T @ values / len(values) + penalty * change

    start = float(gradient.norm())
    enough = start * min(0.1, start**0.5)
    direction, left = torch.zeros_like(gradient), -gradient
    along, square = left, left.square().sum()
    for _ in range(gradient.numel()):
        bent = curved(along)
        reach = square / (along * bent).sum()
        direction, left = direction + reach * along, left - reach * bent
        before, square = square, left.square().sum()
        if float(square) <= enough**2:
            break
        along = left + square / before * along
    return direction


def _along(
    head: Tensor, direction: Tensor, gradient: Tensor, values: Tensor, labels: Tensor, penalty: Tensor
) -> Tensor | None:
    """The first point of 1, 1/2, 1/4, … of the way that lowers the loss as its slope promises, or None."""

    def loss(point: Tensor) -> float:
        return float(F.cross_entropy(values @ point.T, labels) + (penalty * point.square()).sum() / 2)

    slope, here = float((gradient * direction).sum()), loss(head)
    rounding = 1e-14 * (1 + abs(here))  # at the optimum losses differ by less than they are rounded by
    for halvings in range(40):
        reach = 0.5**halvings
        if loss(head + reach * direction) <= here + 1e-4 * reach * slope + rounding:
            return head + reach * direction
    return None
