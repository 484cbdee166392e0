"""Hyper-networks from a support set to the FiLM of a frozen backbone: CNAPs' and tri-M's.

Both read the set's code z and write, stage by stage, a scale and a shift behind every norm of a block. The
quantities of a stage are equally shaped, so each stage makes all of its own in a few batched products: small
maps of one shape, side by side.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor, nn

from fewshift.nets.set_encoder import SetEncoder
from fewshift.types import TaskParams

CODE = 64  # numbers in a set's code
GAIN = 1e-3  # spread of the gains at the start: FiLM begins near the identity
WIDEST = 96  # of tri-M's queries and of its attention over rows


class Modulation(NamedTuple):
    """FiLM for a task, and which domain the gate takes it for where there is a gate."""

    film: TaskParams  # site -> (2, c)
    domain_logits: Tensor | None = None  # (k,)


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


class CnapsStage(nn.Module):
    """One stage of CNAPs' generator: relu(linear(z)), then a private three-layer residual network a quantity.

    A layer maps x to x + Wx + b, with a ReLU between layers and none after the last; the result is multiplied
    by a learned gain (confirmed from code).
    """

    def __init__(self, code: int, channels: int, quantities: int) -> None:
        super().__init__()
        self.enter = nn.Linear(code, channels)
        self.layers = nn.ModuleList(SideBySide(quantities, channels, channels) for _ in range(3))
        self.gain = nn.Parameter(_normal(GAIN, quantities, channels))

    def forward(self, code: Tensor) -> Tensor:  # (e,) -> (quantities, c)
        """The stage's scales and shifts."""
        x = torch.relu(self.enter(code)).expand(len(self.gain), 1, -1)
        for place, layer in enumerate(self.layers):
            x = torch.relu(x) if place else x
            x = x + layer(x)
        return self.gain * x[:, 0]


class CnapsModulator(nn.Module):
    """z = the set's code; every stage makes its FiLM from z alone."""

    def __init__(self, sites: Mapping[str, int], code: int = CODE) -> None:
        super().__init__()
        self.names = stages(sites)
        self.encoder = SetEncoder(code)
        self.stages = nn.ModuleList(CnapsStage(code, sites[names[0]], 2 * len(names)) for names in self.names)

    def forward(self, images: Tensor) -> Modulation:  # (n, 3, h, w)
        """FiLM for the task of this support set."""
        code = self.encoder(images)
        return Modulation(by_site(self.names, [stage(code) for stage in self.stages]))


class TriMStage(nn.Module):
    """One stage of tri-M's generator: a domain-specific and a domain-cooperative part, mixed by channel.

    Specific: a bank of one vector per domain, weighted by the gate. Cooperative: another bank whose rows
    attend to each other, then are asked by a query made from z. `alpha` of a channel says how much is
    cooperative.
    """

    def __init__(self, code: int, channels: int, quantities: int, domains: int) -> None:
        super().__init__()
        width = min(WIDEST, channels)
        self.mixing = nn.Linear(code, channels)
        self.asking = nn.Linear(code, width)
        self.specific = nn.Parameter(_normal(0.01, quantities, domains, channels))
        # of a block: scale and shift of its first norm, then of its second
        self.cooperative = nn.Parameter(torch.empty(quantities, domains, channels))
        for place, values in enumerate(self.cooperative.detach()):
            values.normal_(0, 0.2 if place % 4 < 2 else 0.1)
        self.within = AttentionSideBySide(quantities, channels, channels, width, min(channels // 32, 3))
        self.across = AttentionSideBySide(quantities, width, width, channels, channels // 32)
        self.gain = nn.Parameter(_normal(GAIN, quantities, channels))

    def forward(self, code: Tensor, gate: Tensor) -> Tensor:  # (e,), (k,) -> (quantities, c)
        """The stage's scales and shifts."""
        alpha = self.mixing(code).sigmoid()
        mixed: Tensor = alpha * self.joint(code) + (1 - alpha) * self.by_domain(gate)
        return self.gain * mixed

    def by_domain(self, gate: Tensor) -> Tensor:  # (k,) -> (quantities, c)
        """The specific part: linear in the gate, as FLUTE's blend is."""
        blended: Tensor = torch.einsum("k,qkc->qc", gate, self.specific)
        return blended

    def joint(self, code: Tensor) -> Tensor:  # (e,) -> (quantities, c)
        """The cooperative part."""
        rows = self.within(self.cooperative, self.cooperative)
        question = torch.relu(self.asking(code)).expand(len(self.gain), 1, -1)
        answer: Tensor = self.across(question, rows)
        return answer[:, 0]


class TriMModulator(nn.Module):
    """z = the set's code; a gate over the training domains and z make every stage's FiLM."""

    def __init__(self, sites: Mapping[str, int], domains: int, code: int = CODE) -> None:
        super().__init__()
        self.names = stages(sites)
        self.encoder = SetEncoder(code)
        self.gate = nn.Sequential(nn.Linear(code, code), nn.ReLU(), nn.Linear(code, domains))
        self.stages = nn.ModuleList(
            TriMStage(code, sites[names[0]], 2 * len(names), domains) for names in self.names
        )

    def forward(self, images: Tensor) -> Modulation:  # (n, 3, h, w)
        """FiLM for the task of this support set, and the gate's logits."""
        code = self.encoder(images)
        logits: Tensor = self.gate(code)
        gate = logits.softmax(dim=-1)
        return Modulation(by_site(self.names, [stage(code, gate) for stage in self.stages]), logits)


def gain_penalty(modulator: nn.Module) -> Tensor:  # -> ()
    """The sum of all squared gains."""
    gains = [weight for name, weight in modulator.named_parameters() if name.endswith(".gain")]
    return torch.stack([gain.square().sum() for gain in gains]).sum()


def stages(sites: Mapping[str, int]) -> list[list[str]]:
    """Norms by stage, that is by the first word of their names; all of a stage are equally wide."""
    return [list(names) for _, names in groupby(sites, lambda site: site.split(".")[0])]


def by_site(names: list[list[str]], values: list[Tensor]) -> TaskParams:  # (quantities, c) a stage
    """A stage's rows as scale and shift of its norms in turn."""
    return {
        site: pair
        for stage, rows in zip(names, values, strict=True)
        for site, pair in zip(stage, rows.view(len(stage), 2, -1), strict=True)
    }


def _normal(std: float, *shape: int) -> Tensor:
    return torch.empty(shape).normal_(0, std)
