"""The features of a `ResNet18` as a function of its own weights, on folded convolutions.

Equal to `Backbone`, with a first derivative only. Batch norm is folded into the kernels, and autograd goes
through the folding, which is small. Activations may have 16 bits; then gradients are enlarged where they
enter the convolutions, by as much as the largest of them allows, and put right where they leave them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fewshift.nets.backbone import Backbone
from fewshift.nets.folded import Folded, fold
from fewshift.nets.folded_block import FoldedBlock, fold_block
from fewshift.nets.fused_conv import convolved
from fewshift.nets.resnet import ResNet18, block_names
from fewshift.types import TaskParams

TOP = 1.0  # the largest enlarged gradient of a pooled activation: sums over many pixels stay below 65,504


@dataclass
class _Enlarged:
    """By how much the gradients of one pass are to be shrunk again; set on the way back."""

    shrink: Tensor | None = field(default=None)


@dataclass(frozen=True)
class TunedResNet:
    """(weights, images) -> features, for weights by their full names; those not given stay frozen."""

    backbone: Backbone  # of a ResNet18; its task parameters are its own weights
    dtype: torch.dtype  # of activations

    def __call__(self, params: TaskParams, images: Tensor) -> Tensor:  # (n, 3, h, w) -> (n, dim)
        """The features, in the weights' own type."""
        net, weights = self.backbone.net, self.backbone.adapters.merge(self.backbone.frozen, params)
        assert isinstance(net, ResNet18)
        eps, enlarged = net.bn1.eps, _Enlarged()
        stem = fold(weights, "conv1", "bn1", stride=2, eps=eps, transform=False)
        x = images.to(self.dtype, memory_format=torch.channels_last)
        x = torch.conv2d(x, *self._narrow(stem, enlarged), 2, net.stem_padding).relu_()
        for name in block_names():
            x = self._block(fold_block(weights, name, eps, transform=False), x, enlarged)
        pooled: Tensor = _Pooled.apply(x, stem.bias.dtype, enlarged)  # type: ignore[no-untyped-call]
        return F.linear(pooled, weights["last.weight"])

    def _block(self, block: FoldedBlock, x: Tensor, enlarged: _Enlarged) -> Tensor:
        shortcut, (kernel, bias) = x, self._narrow(block.second, enlarged)
        if block.projection is not None:
            projection, more = self._narrow(block.projection, enlarged)
            shortcut, bias = torch.conv2d(x, projection, None, block.first.stride), bias + more
        y = _Rectified.apply(x, *self._narrow(block.first, enlarged), None, block.first.stride)  # type: ignore[no-untyped-call]
        found: Tensor = _Rectified.apply(y, kernel, bias, shortcut, 1)  # type: ignore[no-untyped-call]
        return found

    def _narrow(self, layer: Folded, enlarged: _Enlarged) -> tuple[Tensor, Tensor]:
        """Kernel and bias in the activations' type."""
        if layer.kernel.dtype == self.dtype:
            return layer.kernel, layer.bias
        kernel, bias = (_Narrowed.apply(w, self.dtype, enlarged) for w in (layer.kernel, layer.bias))  # type: ignore[no-untyped-call]
        return kernel, bias


class _Rectified(torch.autograd.Function):
    """ReLU(kernel * x + bias + shortcut): one pass forward, and the mask is the result itself."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, kernel: Tensor, bias: Tensor, shortcut: Tensor | None, stride: int
    ) -> Tensor:
        y = convolved(x, kernel, bias, shortcut, stride)
        ctx.save_for_backward(x, kernel, y)
        ctx.stride, ctx.has_shortcut = stride, shortcut is not None
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, kernel, y = ctx.saved_tensors
        delta: Tensor = torch.ops.aten.threshold_backward(gradient, y, 0)
        padding, one, wanted = [kernel.shape[-1] // 2] * 2, [1, 1], [True, True, True]
        at_x, at_kernel, at_bias = torch.ops.aten.convolution_backward(
            delta, x, kernel, [len(kernel)], [ctx.stride] * 2, padding, one, False, [0, 0], 1, wanted
        )
        return at_x, at_kernel, at_bias, delta if ctx.has_shortcut else None, None


class _Narrowed(torch.autograd.Function):
    """A weight in the activations' type; its gradient comes back enlarged, and leaves as it should be."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, dtype: torch.dtype, enlarged: _Enlarged) -> Tensor:
        ctx.own, ctx.enlarged = weight.dtype, enlarged
        return weight.to(dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return gradient.to(ctx.own) * ctx.enlarged.shrink, None, None


class _Pooled(torch.autograd.Function):
    """The mean over pixels in the weights' type; enlarges what goes back into 16 bits."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, own: torch.dtype, enlarged: _Enlarged) -> Tensor:
        ctx.dtype, ctx.shape, ctx.enlarged = x.dtype, x.shape, enlarged
        return x.mean(dim=(2, 3), dtype=own)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        if ctx.dtype != gradient.dtype:
            ctx.enlarged.shrink = gradient.abs().amax().clamp_min(1e-30) / TOP
            gradient = gradient / ctx.enlarged.shrink
        share = (gradient / (ctx.shape[2] * ctx.shape[3])).to(ctx.dtype)
        spread = share[:, :, None, None].expand(ctx.shape)
        return spread.contiguous(memory_format=torch.channels_last), None, None
