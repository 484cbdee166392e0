"""Convolutions with adapter and batch norm folded into the kernel, and their first derivative by hand.

With s = γ / √(σ² + ε) and b = β − μ s, the layer s (W * x + A ⋆ x) + b is one convolution by s (W + E(A)),
where E puts A on the centre tap. Its input gradient uses that same kernel. Of its weight gradient only the
centre tap is needed: one matrix product, δᵀx. It is handed out with respect to A itself, diag(s) δᵀx, because
preconditioners act in A's coordinates. Images are (n, c, h, w), channels-last in memory.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fewshift.nets import winograd
from fewshift.nets.fused_conv import input_gradient
from fewshift.types import Weights

WINOGRAD_CHANNELS = 256  # from here on Winograd's products outweigh their transforms on a CPU


@dataclass(frozen=True)
class Folded:
    """A convolution with the batch norm behind it: kernel diag(s) W, its s, and the bias b."""

    site: str
    kernel: Tensor  # (out, in, k, k) channels-last; Winograd's (4, 4, in, out) where that is faster
    scale: Tensor  # (out,)
    bias: Tensor  # (out,)
    stride: int
    centre: Tensor  # the kernel's `tap`, exact where the kernel is rounded
    winograd: bool = False

    def tap(self, kernel: Tensor) -> Tensor:
        """The part of such a kernel that an adapter changes, as a view."""
        return kernel[1:3, 1:3] if self.winograd else centre_tap(kernel)

    def rounded(self, dtype: torch.dtype) -> Folded:
        """The same in numbers of 16 bits; adapters are still added to the exact centre tap, then rounded."""
        kernel, bias = self.kernel.to(dtype), self.bias.to(dtype)
        return replace(self, kernel=kernel, bias=bias, centre=self.centre.contiguous())


def fold(
    frozen: Weights, conv: str, norm: str, stride: int, eps: float = 1e-5, *, transform: bool = True
) -> Folded:
    """Fold the evaluation-mode batch norm `norm` into the convolution `conv`.

    `transform`: may the kernel be kept in Winograd's form where that is faster?
    """
    scale = frozen[f"{norm}.weight"] * (frozen[f"{norm}.running_var"] + eps).rsqrt()
    bias = frozen[f"{norm}.bias"] - frozen[f"{norm}.running_mean"] * scale
    kernel = frozen[f"{conv}.weight"] * scale[:, None, None, None]
    many = min(kernel.shape[:2]) >= WINOGRAD_CHANNELS
    if transform and stride == 1 and many and winograd.pays(kernel.device):
        kernel = winograd.transformed(kernel)
        return Folded(conv, kernel, scale, bias, stride, kernel[1:3, 1:3], winograd=True)
    kernel = kernel.contiguous(memory_format=torch.channels_last)
    return Folded(conv, kernel, scale, bias, stride, centre_tap(kernel))


def centre_tap(kernel: Tensor) -> Tensor:  # (out, in, k, k) -> (out, in)
    """What a kernel multiplies the pixel at its centre by, as a view."""
    reach = kernel.shape[-1] // 2
    return kernel[..., reach, reach]


class AdaptedConv:
    """A folded 3x3 convolution whose centre tap follows an adapter. It belongs to one task."""

    def __init__(self, folded: Folded, bias: Tensor | None = None) -> None:
        self.folded = folded
        self.bias = folded.bias if bias is None else bias
        self.kernel = folded.kernel  # the frozen one, until there is an adapter

    def set(self, adapter: Tensor) -> None:  # (out, in)
        """Put an adapter on the centre tap; the rest of the kernel is copied the first time only."""
        if self.kernel is self.folded.kernel:
            self.kernel = self.kernel.clone(memory_format=torch.preserve_format)
        target, centre, scale = self.folded.tap(self.kernel), self.folded.centre, self.folded.scale[:, None]
        if self.folded.winograd:
            winograd.set_centre_(target, centre, scale * adapter)
        else:
            target.copy_(torch.addcmul(centre, scale, adapter))

    def __call__(self, x: Tensor) -> Tensor:  # (n, in, h, w) -> (n, out, h', w')
        """The layer's output before its ReLU."""
        if self.folded.winograd:
            return channels_second(winograd.convolve(channels_last(x), self.kernel, self.bias))
        return torch.conv2d(x, self.kernel, self.bias, self.folded.stride, padding=1)

    def input_gradient(self, delta: Tensor, x: Tensor) -> Tensor:  # (n, out, h', w') -> (n, in, h, w)
        """The gradient with respect to x, of which only the shape is read."""
        if self.folded.winograd:
            return channels_second(winograd.input_gradient(channels_last(delta), self.kernel))
        return input_gradient(delta, x, self.kernel, self.folded.stride)


def channels_last(x: Tensor) -> Tensor:  # (n, c, h, w) -> (n, h, w, c)
    """The images as they lie in memory, a view."""
    return x.permute(0, 2, 3, 1)


def channels_second(x: Tensor) -> Tensor:  # (n, h, w, c) -> (n, c, h, w)
    """The inverse view."""
    return x.permute(0, 3, 1, 2)


def pixels(x: Tensor, stride: int = 1) -> Tensor:  # (n, c, h, w) -> (n * h' * w', c)
    """Every stride-th pixel as a row: what a 1x1 convolution reads, and the centre tap of a 3x3 one."""
    return channels_last(x)[:, ::stride, ::stride].reshape(-1, x.shape[1])


def as_images(rows: Tensor, like: Tensor) -> Tensor:  # (n * h * w, c) or (cells, pixels, c) -> (n, c, h, w)
    """Rows of pixels back to images of the size of `like`."""
    return channels_second(rows.view(like.shape[0], *like.shape[2:], rows.shape[-1]))
