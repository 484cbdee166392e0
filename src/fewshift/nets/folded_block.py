"""A residual block on folded convolutions: its activations under a task's adapters, and their derivative."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from fewshift.nets.folded import AdaptedConv, Folded, as_images, centre_tap, channels_last, fold, pixels
from fewshift.nets.pointwise import relu_gradient_
from fewshift.nets.resnet import STRIDES
from fewshift.types import Weights


@dataclass(frozen=True)
class FoldedBlock:
    """A residual block: two folded 3x3 convolutions and perhaps a folded projection."""

    first: Folded
    second: Folded
    projection: Folded | None

    @property
    def bias(self) -> Tensor:
        """The second convolution's and the projection's together."""
        own = self.second.bias
        return own if self.projection is None else own + self.projection.bias

    @property
    def matrix(self) -> Tensor | None:  # (out, in)
        """The projection's kernel."""
        return None if self.projection is None else centre_tap(self.projection.kernel)

    def rounded(self, dtype: torch.dtype) -> FoldedBlock:
        """The same block in numbers of 16 bits."""
        return replace(
            self,
            first=self.first.rounded(dtype),
            second=self.second.rounded(dtype),
            projection=self.projection and self.projection.rounded(dtype),
        )


def fold_block(frozen: Weights, name: str, eps: float, *, transform: bool = True) -> FoldedBlock:
    """Fold the batch norms of one block; `transform` as in `fold`."""
    stage, place = name.removeprefix("layer").split(".")
    stride = STRIDES[int(stage) - 1] if place == "0" else 1
    first = fold(frozen, f"{name}.conv1", f"{name}.bn1", stride, eps, transform=transform)
    second = fold(frozen, f"{name}.conv2", f"{name}.bn2", 1, eps, transform=transform)
    projection = None
    if f"{name}.downsample.0.weight" in frozen:
        projection = fold(frozen, f"{name}.downsample.0", f"{name}.downsample.1", stride, eps)
    return FoldedBlock(first, second, projection)


class Kept(NamedTuple):
    """What a block's derivative needs: activations are their own ReLU masks."""

    read: Tensor  # (pixels, in) the input where the centre tap reads it
    middle: Tensor  # after the first convolution
    output: Tensor


class AdaptedBlock:
    """A folded block under one task's adapters."""

    def __init__(self, block: FoldedBlock) -> None:
        self.stride = block.first.stride
        self.first, self.second = AdaptedConv(block.first), AdaptedConv(block.second, block.bias)
        self.convs = {conv.folded.site: conv for conv in (self.first, self.second)}
        self.matrix = block.matrix

    def set(self, params: Mapping[str, Tensor]) -> None:
        """Put the task's adapters into the kernels."""
        for site, conv in self.convs.items():
            if site in params:
                conv.set(params[site])

    def __call__(self, x: Tensor) -> Kept:
        """The block's activations."""
        return self.finish(x, pixels(x, self.stride), self.first(x))

    def finish(self, x: Tensor, read: Tensor, response: Tensor) -> Kept:
        """All that follows the first convolution's `response`."""
        middle = response.relu_()
        output = self.second(middle)
        if self.matrix is None:
            output = output.add_(x)
        else:
            output = as_images(torch.addmm(pixels(output), read, self.matrix.T), output)
        return Kept(read, middle, output.relu_())

    def gradients(
        self, delta: Tensor, kept: Kept, x: Tensor | None, found: dict[str, Tensor]
    ) -> Tensor | None:
        """Add the adapters' gradients to `found`; the gradient at the block's input x, if that is wanted.

        `delta` is the gradient before the last ReLU.
        """
        first, second = self.convs
        add_centre_gradient(found, second, delta, pixels(kept.middle))
        if x is None and first not in found:
            return None
        inner = relu_gradient_(self.second.input_gradient(delta, kept.middle), kept.middle)
        add_centre_gradient(found, first, inner, kept.read)
        if x is None:
            return None
        gradient = self.first.input_gradient(inner, x)
        if self.matrix is None:
            return gradient.add_(delta)
        through = as_images(pixels(delta) @ self.matrix, delta)
        channels_last(gradient)[:, :: self.stride, :: self.stride] += channels_last(through)
        return gradient


def add_centre_gradient(found: dict[str, Tensor], site: str, delta: Tensor, read: Tensor) -> None:
    """Add δᵀx, the centre tap's gradient up to diag(s), where it is asked for.

    Sums over the chunks of a batch keep the exact type of `found`, whatever the type of δ and x.
    """
    if site not in found:
        return
    if delta.dtype == found[site].dtype:
        found[site].addmm_(pixels(delta).T, read)
    else:
        found[site].add_(pixels(delta).T @ read)
