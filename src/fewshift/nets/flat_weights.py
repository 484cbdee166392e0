"""The convolutions and norms of a `ResNet18` in three flat tensors, folded into each other all at once.

A layer s (W * x) + b, with s = γ / √(σ² + ε) and b = β − μ s, is one convolution by s W. For twenty layers
that is some hundred small operations per pass and more on the way back; laid end to end it is some forty.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fewshift.nets.backbone import Backbone
from fewshift.nets.resnet import ResNet18, block_names
from fewshift.types import TaskParams, Weights


class Flat(NamedTuple):
    """All weights of convolutions and norms, layer after layer."""

    kernels: Tensor  # (weights,), each kernel channels-last
    scales: Tensor  # (channels,), γ
    shifts: Tensor  # (channels,), β


class Layer(NamedTuple):
    """A convolution's kernel and bias after folding."""

    kernel: Tensor  # (out, in, k, k), channels-last
    bias: Tensor  # (out,)


@dataclass
class Enlarged:
    """By how much the gradients of one pass are to be shrunk again; None: not at all. Set on the way back."""

    shrink: Tensor | None = None


@dataclass(frozen=True)
class Layout:
    """Which layer lies where."""

    backbone: Backbone  # of a ResNet18

    @cached_property
    def layers(self) -> tuple[tuple[str, str], ...]:
        """The names of convolutions and of the norms behind them: stem, then block after block."""
        found = [("conv1", "bn1")]
        for name in block_names():
            found += [(f"{name}.conv1", f"{name}.bn1"), (f"{name}.conv2", f"{name}.bn2")]
            if f"{name}.downsample.0.weight" in self.backbone.frozen:
                found.append((f"{name}.downsample.0", f"{name}.downsample.1"))
        return tuple(found)

    @property
    def names(self) -> tuple[list[str], list[str], list[str]]:
        """The full names of the weights in each of the three tensors."""
        kernels, scales = ([f"{name}.weight" for name in own] for own in zip(*self.layers, strict=True))
        return kernels, scales, [f"{norm}.bias" for _, norm in self.layers]

    @cached_property
    def shapes(self) -> tuple[torch.Size, ...]:
        """Of the kernels as they lie in memory: (out, k, k, in)."""
        return tuple(
            self.backbone.frozen[f"{conv}.weight"].permute(0, 2, 3, 1).shape for conv, _ in self.layers
        )

    @cached_property
    def owner(self) -> Tensor:  # (weights,)
        """The channel that each weight of a kernel makes."""
        counts = torch.cat([torch.full((shape[0],), shape[1:].numel()) for shape in self.shapes])
        return torch.arange(len(counts)).repeat_interleave(counts).to(self.backbone.device)

    @cached_property
    def inverse_spreads(self) -> Tensor:  # (channels,)
        """1 / √(σ² + ε)."""
        net = self.backbone.net
        assert isinstance(net, ResNet18)
        return (self._channels(self.backbone.frozen, "running_var") + net.bn1.eps).rsqrt()

    @cached_property
    def means(self) -> Tensor:  # (channels,)
        """μ."""
        return self._channels(self.backbone.frozen, "running_mean")

    def flat(self, weights: Weights) -> Flat:
        """These weights end to end; differentiable."""
        kernels = [weights[f"{conv}.weight"].permute(0, 2, 3, 1).flatten() for conv, _ in self.layers]
        return Flat(torch.cat(kernels), self._channels(weights, "weight"), self._channels(weights, "bias"))

    def named(self, flat: Flat) -> TaskParams:
        """The weights by their full names, as views."""
        found: TaskParams = {}
        for (conv, norm), kernel, scale, shift in zip(
            self.layers, self.kernels(flat.kernels), *map(self.channels, flat[1:]), strict=True
        ):
            found |= {f"{conv}.weight": kernel, f"{norm}.weight": scale, f"{norm}.bias": shift}
        return found

    def kernels(self, values: Tensor) -> list[Tensor]:  # (weights,) -> (out, in, k, k) each
        """A number a weight, as kernels."""
        parts = torch.split(values, [shape.numel() for shape in self.shapes])
        return [_kernel(part, shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def channels(self, values: Tensor) -> list[Tensor]:  # (channels,) -> (out,) each
        """One number per channel, by layer."""
        return list(torch.split(values, [shape[0] for shape in self.shapes]))

    def folded(self, flat: Flat, dtype: torch.dtype, enlarged: Enlarged) -> list[Layer]:
        """Every layer as one convolution, in this type."""
        found = _Folded.apply(*flat, self, dtype, enlarged)  # type: ignore[no-untyped-call]
        count = len(self.layers)
        return [Layer(*both) for both in zip(found[:count], found[count:], strict=True)]

    def _channels(self, weights: Weights, what: str) -> Tensor:
        return torch.cat([weights[f"{norm}.{what}"] for _, norm in self.layers])


def _kernel(values: Tensor, shape: torch.Size) -> Tensor:  # (n,), (out, k, k, in) -> (out, in, k, k)
    """Channels-last; where k is 1 with the strides that torch itself gives to a result of that shape."""
    outputs, side, _, inputs = shape
    return values.view(outputs, inputs, 1, 1) if side == 1 else values.view(shape).permute(0, 3, 1, 2)


class _Folded(torch.autograd.Function):
    """s W and β − μ s of all layers; what comes back enlarged leaves as it should be."""

    @staticmethod
    def forward(
        ctx: Any,
        kernels: Tensor,
        gammas: Tensor,
        betas: Tensor,
        layout: Layout,
        dtype: torch.dtype,
        enlarged: Enlarged,
    ) -> tuple[Tensor, ...]:
        ctx.layout, ctx.enlarged = layout, enlarged
        scales = gammas * layout.inverse_spreads
        ctx.save_for_backward(kernels, scales)
        folded = (kernels * scales[layout.owner]).to(dtype)
        biases = torch.addcmul(betas, layout.means, scales, value=-1).to(dtype)
        return *layout.kernels(folded), *layout.channels(biases)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        layout, (kernels, scales) = ctx.layout, ctx.saved_tensors
        count = len(layout.layers)
        at_kernels = torch.cat([g.permute(0, 2, 3, 1).flatten() for g in gradients[:count]]).to(kernels.dtype)
        at_biases = torch.cat(gradients[count:]).to(kernels.dtype)
        if ctx.enlarged.shrink is not None:
            at_kernels, at_biases = at_kernels * ctx.enlarged.shrink, at_biases * ctx.enlarged.shrink
        products = layout.kernels(at_kernels * kernels)
        at_scales = torch.cat([product.sum(dim=(1, 2, 3)) for product in products]) - layout.means * at_biases
        own = at_kernels * scales[layout.owner] if ctx.needs_input_grad[0] else None
        return own, at_scales * layout.inverse_spreads, at_biases, None, None, None
