"""Small maps of one shape, many at a time: hyper-networks are made of hundreds of them."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class SideBySide(nn.Module):
    """`count` linear layers of one shape as one batched product, with the starting values of `nn.Linear`."""

    def __init__(self, count: int, inputs: int, outputs: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(count, outputs, inputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(count, outputs).uniform_(-bound, bound))

    def forward(self, x: Tensor) -> Tensor:  # (count, n, inputs) -> (count, n, outputs)
        """Each layer on its own rows."""
        return torch.baddbmm(self.bias[:, None], x, self.weight.mT)


class AttentionSideBySide(nn.Module):
    """`count` attention blocks of tri-M: softmax(QKᵀ / √width) by heads, then O + relu(linear(O)).

    The divisor is the root of the whole width, not of a head's; O = Q + AV starts from the projected query;
    there is no layer norm (confirmed from code).
    """

    def __init__(self, count: int, queries: int, keys: int, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.width = fitting(heads, width), width
        self.query = SideBySide(count, queries, width)
        self.key = SideBySide(count, keys, width)
        self.value = SideBySide(count, keys, width)
        self.leave = SideBySide(count, width, width)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:  # (m, n, q), (m, l, k) -> (m, n, width)
        """Each block's rows, attending to that block's context."""
        query, key, value = self.query(x), self.key(context), self.value(context)
        by_head = [t.view(*t.shape[:2], self.heads, -1).transpose(1, 2) for t in (query, key, value)]
        scores = (by_head[0] @ by_head[1].mT / math.sqrt(self.width)).softmax(dim=-1)
        out: Tensor = query + (scores @ by_head[2]).transpose(1, 2).flatten(2)
        activated: Tensor = torch.relu(self.leave(out))
        return out + activated


def fitting(heads: int, width: int) -> int:
    """The largest number of heads up to the wished one, and one at least, that divides the width.

    >>> fitting(3, 96), fitting(3, 64), fitting(0, 4)
    (3, 2, 1)
    """
    return next(count for count in range(max(heads, 1), 0, -1) if width % count == 0)
