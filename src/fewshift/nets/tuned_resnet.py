"""The features of a `ResNet18` as a function of its own weights, on folded convolutions.

Equal to `Backbone`, with a first derivative only. Activations may have 16 bits; then gradients are enlarged
where they enter the convolutions, by as much as the largest of them allows, and put right where they leave.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fewshift.nets.backbone import Backbone
from fewshift.nets.flat_weights import Enlarged, Flat, Layer, Layout
from fewshift.nets.fused_conv import convolved
from fewshift.nets.resnet import BLOCKS, STRIDES, ResNet18
from fewshift.nets.whole import suited
from fewshift.types import TaskParams

TOP = 1.0  # the largest enlarged gradient of a pooled activation: sums over many pixels stay below 65,504


@dataclass(frozen=True)
class TunedResNet:
    """(weights, images) -> features, for weights by their full names; those not given stay frozen."""

    backbone: Backbone  # of a ResNet18; its task parameters are its own weights
    dtype: torch.dtype  # of activations

    @cached_property
    def layout(self) -> Layout:
        """Where each weight lies in flat tensors."""
        return Layout(self.backbone)

    def __call__(self, params: TaskParams, images: Tensor) -> Tensor:  # (n, 3, h, w) -> (n, dim)
        """The features, in the weights' own type."""
        return self.features(
            self.layout.flat(self.backbone.adapters.merge(self.backbone.frozen, params)), images
        )

    def features(self, flat: Flat, images: Tensor) -> Tensor:  # (n, 3, h, w) -> (n, dim)
        """The same for weights that lie end to end."""
        net, enlarged = self.backbone.net, Enlarged()
        assert isinstance(net, ResNet18)
        layers = iter(self.layout.folded(flat, self.dtype, enlarged))
        x = images.to(self.dtype, memory_format=torch.channels_last)
        x = torch.conv2d(x, *next(layers), 2, net.stem_padding).relu_()
        for stride in STRIDES:
            for place in range(BLOCKS):
                x = _block(x, layers, 1 if place else stride)
        pooled: Tensor = _Pooled.apply(x, flat.scales.dtype, enlarged)  # type: ignore[no-untyped-call]
        return F.linear(pooled, self.backbone.frozen["last.weight"])


def _block(x: Tensor, layers: Iterator[Layer], stride: int) -> Tensor:
    """Takes its layers from the front of those that are left."""
    first, second = next(layers), next(layers)
    shortcut, bias = x, second.bias
    if len(first.kernel) != x.shape[1] or stride > 1:
        projection = next(layers)
        shortcut = torch.conv2d(suited(x), suited(projection.kernel), None, stride)
        bias = bias + projection.bias
    y = _Rectified.apply(x, *first, None, stride)  # type: ignore[no-untyped-call]
    found: Tensor = _Rectified.apply(y, second.kernel, bias, shortcut, 1)  # type: ignore[no-untyped-call]
    return found


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
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, kernel, y = ctx.saved_tensors
        delta: Tensor = torch.ops.aten.threshold_backward(gradient, y, 0)
        padding, one, wanted = [kernel.shape[-1] // 2] * 2, [1, 1], [True, True, True]
        at_x, at_kernel, at_bias = torch.ops.aten.convolution_backward(
            delta, x, kernel, [len(kernel)], [ctx.stride] * 2, padding, one, False, [0, 0], 1, wanted
        )
        return at_x, at_kernel, at_bias, delta if ctx.has_shortcut else None, None


class _Pooled(torch.autograd.Function):
    """The mean over pixels in the weights' type; enlarges what goes back into 16 bits."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, own: torch.dtype, enlarged: Enlarged) -> Tensor:
        ctx.dtype, ctx.shape, ctx.enlarged = x.dtype, x.shape, enlarged
        return x.mean(dim=(2, 3), dtype=own)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        if ctx.dtype != gradient.dtype:
            ctx.enlarged.shrink = gradient.abs().amax().clamp_min(1e-30) / TOP
            gradient = gradient / ctx.enlarged.shrink
        share = (gradient / (ctx.shape[2] * ctx.shape[3])).to(ctx.dtype)
        spread = share[:, :, None, None].expand(ctx.shape)
        return spread.contiguous(memory_format=torch.channels_last), None, None
