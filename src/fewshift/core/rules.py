"""The rules that a Proto-MAML run can learn with: what each learns beside the weights, and how it steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fewshift.core.gap import START, Basis, DiagonalAdaptive, GradientAdaptive, by_eigenvectors, short_side
from fewshift.core.meta_updates import ElementwiseRates, Generated, ModeProducts
from fewshift.core.proto_head import BIAS, WEIGHT
from fewshift.core.updates import Preconditioned, Update
from fewshift.errors import FewshiftError
from fewshift.types import Weights

ALFA_DECAY = 5e-4  # the weight decay that ALFA starts from, in units of the rate


@dataclass(frozen=True)
class Shape:
    """What a rule has to fit: the kernels, the length of a feature, the inner level."""

    kernels: Weights
    dim: int
    rate: float
    steps: int

    @property
    def sites(self) -> tuple[str, ...]:
        """Everything that moves, in the order that rules are stepped in."""
        return (*self.kernels, WEIGHT, BIAS)

    def filled(self, size: tuple[int, ...], value: float) -> Tensor:
        """A tensor of one value, where the kernels are."""
        return next(iter(self.kernels.values())).new_full(size, value)

    def identity(self, size: int) -> Tensor:
        """An identity matrix, where the kernels are."""
        like = next(iter(self.kernels.values()))
        return torch.eye(size, dtype=like.dtype, device=like.device)


@dataclass(frozen=True)
class Rule:
    """A kind of inner step: `start` gives what it learns, untrained; `make` the step with what it learned."""

    method: str  # the name of the method, and of its part in a kit
    start: Callable[[Shape, torch.Generator], dict[str, Tensor]]
    make: Callable[[Mapping[str, Tensor], Shape], Update[Any]]


def _nothing(shape: Shape, generator: torch.Generator) -> dict[str, Tensor]:
    return {}


def _descent(learned: Mapping[str, Tensor], shape: Shape) -> Preconditioned:
    return Preconditioned(None, dict.fromkeys(shape.sites, shape.rate))


def _constant_rates(shape: Shape, generator: torch.Generator) -> dict[str, Tensor]:
    """Every rate at the inner rate: the start is Proto-MAML (inferred; the original draws them at random)."""
    rates = {site: torch.full_like(kernel, shape.rate) for site, kernel in shape.kernels.items()}
    return rates | {WEIGHT: shape.filled((shape.dim,), shape.rate), BIAS: shape.filled((), shape.rate)}


def _identities(shape: Shape, generator: torch.Generator) -> dict[str, Tensor]:
    """All matrices at the identity: the start is Proto-MAML (confirmed from code)."""
    products = {}
    for site, kernel in shape.kernels.items():
        outputs, inputs = kernel.shape[:2]
        products[f"{site}|outputs"] = shape.identity(outputs)
        products[f"{site}|inputs"] = shape.identity(inputs)
        if kernel.ndim > 2:
            products[f"{site}|positions"] = shape.identity(kernel[0, 0].numel())
    return products | {f"{WEIGHT}|inputs": shape.identity(shape.dim), f"{BIAS}|factor": shape.filled((), 1.0)}


def _neutral_logits(shape: Shape, generator: torch.Generator) -> dict[str, Tensor]:
    return {
        site: shape.filled((short_side(kernel),), START)
        for site, kernel in shape.kernels.items()
        if kernel.ndim == 4
    }


def _neutral_generator(shape: Shape, generator: torch.Generator) -> dict[str, Tensor]:
    """Its last layer starts at weights 0 and biases 1 (our own): descent with ALFA's rate and weight decay.

    As published it starts at random, so that first steps go anywhere but far.
    """
    layers = len(shape.sites)
    spread = 1 / (2 * layers) ** 0.5
    hidden = shape.filled((2 * layers, 2 * layers), 0.0)
    hidden.copy_((2 * torch.rand(hidden.shape, generator=generator) - 1) * spread)
    return {
        "hidden.weight": hidden,
        "hidden.bias": shape.filled((2 * layers,), 0.0),
        "out.weight": shape.filled((2 * layers, 2 * layers), 0.0),
        "out.bias": shape.filled((2 * layers,), 1.0),
        "rates": shape.filled((shape.steps, layers), shape.rate),
        "decays": shape.filled((shape.steps, layers), shape.rate * ALFA_DECAY),
    }


def _generated(learned: Mapping[str, Tensor], shape: Shape) -> Generated:
    return Generated(learned, learned["rates"], learned["decays"])


def gradient_adaptive(
    learned: Mapping[str, Tensor], shape: Shape, basis: Basis = by_eigenvectors
) -> GradientAdaptive:
    """GAP's rule; `basis` is how its singular vectors are found."""
    return GradientAdaptive(learned, shape.rate, basis)


RULES: Mapping[str, Rule] = {
    "sgd": Rule("proto_maml", _nothing, _descent),
    "alfa": Rule("alfa", _neutral_generator, _generated),
    "gap": Rule("gap", _neutral_logits, gradient_adaptive),
    "gap-approximate": Rule(
        "gap_approximate", _neutral_logits, lambda learned, shape: DiagonalAdaptive(learned, shape.rate)
    ),
    "meta-sgd": Rule("meta_sgd", _constant_rates, lambda learned, shape: ElementwiseRates(learned)),
    "meta-curvature": Rule(
        "meta_curvature", _identities, lambda learned, shape: ModeProducts(learned, shape.rate)
    ),
}


def rule_named(name: str) -> Rule:
    """A rule by its name."""
    if name not in RULES:
        raise FewshiftError(f"there is no rule {name!r}: choose one of {', '.join(RULES)}")
    return RULES[name]
