"""Update rules with learned parts: Meta-SGD, Meta-Curvature and ALFA. GAP's are in `core.gap`.

They move the kernels of a network and a linear head whose number of classes changes from task to task. What
is learned for the head therefore has no dimension of classes; each rule says how it does without.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from fewshift.core.updates import Memoryless
from fewshift.types import TaskParams


@dataclass(frozen=True)
class ElementwiseRates(Memoryless):
    """Meta-SGD (Li et al. 2017): θ ← θ − A∘G, a rate of either sign for every number.

    The head has one for each feature and one for all biases (inferred: the original has a fixed way).
    """

    rates: Mapping[str, Tensor]  # site -> a shape that broadcasts to the parameter's

    def moved(self, params: TaskParams, gradients: TaskParams) -> TaskParams:
        """The parameters after one step."""
        return {site: param - self.rates[site] * gradients[site] for site, param in params.items()}


@dataclass(frozen=True)
class ModeProducts(Memoryless):
    """Meta-Curvature (Park & Oliva 2019): θ ← θ − α·G, with a learned square matrix along each mode of G.

    A kernel has one for its outputs, inputs and filter positions. The head has one for its features and a
    factor for its biases; the matrix over classes is left out (inferred: the original has a fixed way).
    """

    products: Mapping[str, Tensor]  # `site|outputs`, `site|inputs`, `site|positions`, `site|factor`
    rate: float

    def moved(self, params: TaskParams, gradients: TaskParams) -> TaskParams:
        """The parameters after one step."""
        return {site: p - self.rate * self._bent(site, gradients[site]) for site, p in params.items()}

    def _bent(self, site: str, gradient: Tensor) -> Tensor:
        if gradient.ndim == 1:
            return self.products[f"{site}|factor"] * gradient
        view = gradient.flatten(2) if gradient.ndim > 2 else gradient[:, :, None]  # (out, in, positions)
        bent = torch.einsum("oip,ij->ojp", view, self.products[f"{site}|inputs"])
        for mode, rule in (("outputs", "oip,oj->jip"), ("positions", "oip,pj->oij")):
            if f"{site}|{mode}" in self.products:
                bent = torch.einsum(rule, bent, self.products[f"{site}|{mode}"])
        return bent.reshape(gradient.shape)


@dataclass(frozen=True)
class Generated:
    """ALFA (Baik et al. 2020): θ ← (1 − b·B_t)·θ − a·A_t·G, with a and b of every tensor made from its state.

    A network of two layers, the same at every step, reads the mean of each tensor and of its gradient, both
    as constants. A_t and B_t are learned per tensor and step; later steps use the last ones (our own).
    """

    generator: Mapping[str, Tensor]  # hidden.weight, hidden.bias, out.weight, out.bias: 2L -> 2L -> 2L
    rates: Tensor  # (steps, L) A
    decays: Tensor  # (steps, L) B

    def init(self, params: TaskParams) -> int:
        """No step was taken."""
        return 0

    def step(self, params: TaskParams, gradients: TaskParams, state: int) -> tuple[TaskParams, int]:
        """One step at every site."""
        rates, decays = self.generated(params, gradients)
        place = min(state, len(self.rates) - 1)
        rates, decays = rates * self.rates[place], decays * self.decays[place]
        moved = {
            site: (1 - decays[layer]) * params[site] - rates[layer] * gradients[site]
            for layer, site in enumerate(params)
        }
        return moved, state + 1

    def generated(self, params: TaskParams, gradients: TaskParams) -> tuple[Tensor, Tensor]:  # (L,), (L,)
        """a and b of every tensor, in the order of the parameters."""
        state = torch.stack([t.detach().mean() for part in (params, gradients) for t in part.values()])
        net = self.generator
        hidden = F.linear(state, net["hidden.weight"], net["hidden.bias"]).relu()
        rates, decays = F.linear(hidden, net["out.weight"], net["out.bias"]).chunk(2)
        return rates, decays
