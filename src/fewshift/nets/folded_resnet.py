"""The features of a `ResNet18` under task parameters on folded convolutions: equal to `Backbone`, and faster.

There is a first derivative only; second derivatives need the plain `Backbone`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fewshift.errors import FewshiftError
from fewshift.nets.adapters import ResidualAdapters, resnet18_adapters
from fewshift.nets.backbone import Backbone
from fewshift.nets.folded import Folded, as_images, fold, pixels
from fewshift.nets.folded_block import AdaptedBlock, FoldedBlock, fold_block
from fewshift.nets.pointwise import relu_gradient_
from fewshift.nets.resnet import ResNet18, block_names
from fewshift.types import TaskParams

CPU_CHUNK = 32  # images whose activations stay near the cores
CUDA_CHUNK = 1024


@dataclass(frozen=True)
class FoldedResNet:
    """A frozen `ResNet18`, folded once for all tasks."""

    stem: Folded
    stem_padding: int
    blocks: tuple[FoldedBlock, ...]
    last: Tensor  # (d, d)
    dtype: torch.dtype  # of what is between the stem and the pooled activations

    @property
    def chunk(self) -> int:
        """How many images to take at once."""
        return CPU_CHUNK if self.last.device.type == "cpu" else CUDA_CHUNK

    def operations(self, batch: Tensor) -> int:
        """About how many floating-point operations a forward pass takes."""
        pixels_in = len(batch) * batch.shape[-2] * batch.shape[-1]
        total, area = 0, 4  # the stem halves both sides
        for block in self.blocks:
            area *= block.first.stride**2
            total += 2 * pixels_in * (block.first.kernel.numel() + block.second.kernel.numel()) // area
        return total

    @torch.no_grad()
    def features(self, params: TaskParams, batch: Tensor) -> Tensor:  # (n, 3, h, w) -> (n, d)
        """Of any images under these parameters, without gradients."""
        blocks = [AdaptedBlock(block) for block in self.blocks]
        for block in blocks:
            block.set(params)
        pooled = []
        for part in torch.split(batch, self.chunk):
            x = self.stem_of(part)
            for block in blocks:
                x = block(x).output
            pooled.append(self.pooled(x))
        return F.linear(torch.cat(pooled), params.get("last", self.last))

    def stem_of(self, batch: Tensor) -> Tensor:  # (n, 3, h, w) -> (n, width, h', w')
        """What enters the first block; no task parameter changes it."""
        x = batch.contiguous(memory_format=torch.channels_last)
        x = torch.conv2d(x, self.stem.kernel, self.stem.bias, self.stem.stride, self.stem_padding)
        return x.relu_().to(self.dtype)

    def pooled(self, output: Tensor) -> Tensor:  # (n, d, h, w) -> (n, d)
        """The mean over pixels, in the exact type again."""
        return output.mean(dim=(2, 3), dtype=self.last.dtype)


def cannot_fold(backbone: Backbone) -> str | None:
    """Why a backbone has no folded form; None when it has one."""
    if type(backbone.net) is not ResNet18:
        return f"only ResNet18 is known, not {type(backbone.net).__name__}"
    if type(backbone.adapters) is not ResidualAdapters:
        return f"only residual adapters are known, not {type(backbone.adapters).__name__}"
    outside = [site for site in backbone.sites if site not in resnet18_adapters().sites]
    if outside:
        return f"only adapters beside the blocks' 3x3 convolutions are known, not beside {outside[0]}"
    return None


def folded_resnet(backbone: Backbone, rounded_to: torch.dtype | None = None) -> FoldedResNet:
    """Fold a backbone's weights; its own stay as they are.

    With `rounded_to` the blocks compute in that type of 16 bits; the stem and what follows pooling do not.
    """
    if why_not := cannot_fold(backbone):
        raise FewshiftError(f"this backbone has no folded form ({why_not}): choose the plain engine")
    net, frozen = backbone.net, backbone.frozen
    assert isinstance(net, ResNet18)
    exact = rounded_to is None  # Winograd's transforms would lose what 16 bits have left
    blocks = tuple(fold_block(frozen, name, net.bn1.eps, transform=exact) for name in block_names())
    if rounded_to is not None:
        blocks = tuple(block.rounded(rounded_to) for block in blocks)
    stem, last = fold(frozen, "conv1", "bn1", stride=2, eps=net.bn1.eps), frozen["last.weight"]
    return FoldedResNet(stem, net.stem_padding, blocks, last, rounded_to or last.dtype)


class SupportFeatures:
    """Features of one task's images as a function of its parameters, differentiable once.

    What no parameter changes is computed once: everything before the first block with an adapter, and the
    frozen response of that block's first convolution. Sites without parameters stay frozen. Each call
    overwrites the kernels of the one before, so a gradient must be taken before the next call.
    """

    def __init__(self, net: FoldedResNet, batch: Tensor, sites: tuple[str, ...]) -> None:
        self.net, self.sites = net, tuple(site for site in sites if site != "last")
        self.calls = 0
        blocks = [AdaptedBlock(block) for block in net.blocks]
        active = [i for i, block in enumerate(blocks) if block.convs.keys() & set(self.sites)]
        start = active[0] if active else len(blocks)
        self.blocks = blocks[start:]
        self.heads: list[tuple[Tensor, Tensor, Tensor]] = []
        pooled = []
        with torch.no_grad():
            for part in torch.split(batch, net.chunk):
                x = net.stem_of(part)
                for block in blocks[:start]:
                    x = block(x).output
                if self.blocks:
                    self.heads.append((x, pixels(x, self.blocks[0].stride), self.blocks[0].first(x)))
                else:
                    pooled.append(net.pooled(x))
        self.constant = torch.cat(pooled) if pooled else None

    def __call__(self, params: TaskParams) -> Tensor:  # -> (n, d)
        """The features under these parameters."""
        pooled = self.constant
        if pooled is None:
            pooled = _Pooled.apply(self, *(params[site] for site in self.sites))  # type: ignore[no-untyped-call]
        return F.linear(pooled, params.get("last", self.net.last))


class _Pooled(torch.autograd.Function):
    """Adapters to pooled activations."""

    @staticmethod
    def forward(ctx: Any, task: SupportFeatures, *adapters: Tensor) -> Tensor:
        params = dict(zip(task.sites, adapters, strict=True))
        for block in task.blocks:
            block.set(params)
        head = task.blocks[0]
        site = head.first.folded.site
        kept, pooled = [], []
        for x, read, frozen in task.heads:
            if site in params:
                product = (head.first.folded.scale[:, None] * params[site]).T.to(frozen.dtype)
                response = as_images(torch.addmm(pixels(frozen), read, product), frozen)
            else:
                response = frozen.clone()
            chunk = [head.finish(x, read, response)]
            for block in task.blocks[1:]:
                chunk.append(block(chunk[-1].output))
            kept.append(chunk)
            pooled.append(task.net.pooled(chunk[-1].output))
        task.calls += 1
        ctx.task, ctx.kept, ctx.call, ctx.params = task, kept, task.calls, params
        return torch.cat(pooled)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        task: SupportFeatures = ctx.task
        if ctx.call != task.calls:
            raise RuntimeError("the kernels were overwritten: take the gradient before the next call")
        found = {site: torch.zeros_like(param) for site, param in ctx.params.items()}
        parts = torch.split(gradient, task.net.chunk)
        for part, chunk in zip(parts, ctx.kept, strict=True):
            top = chunk[-1].output
            spread = (part / top[0, 0].numel()).to(top.dtype)[:, :, None, None].expand_as(top)
            upstream = spread.clone(memory_format=torch.channels_last)
            for place in reversed(range(len(chunk))):
                kept = chunk.pop()
                delta = relu_gradient_(upstream, kept.output)
                below = chunk[-1].output if chunk else None
                upstream = task.blocks[place].gradients(delta, kept, below, found)
        convs = {site: conv for block in task.blocks for site, conv in block.convs.items()}
        return None, *(found[site].mul_(convs[site].folded.scale[:, None]) for site in task.sites)
