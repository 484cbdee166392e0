"""The frozen ResNet-18 as a GPU wants it: batch norm folded, one number type, channels-last."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fewshift.errors import FewshiftError
from fewshift.nets.adapters import resnet18_adapters
from fewshift.nets.backbone import Backbone
from fewshift.nets.folded import Folded, fold
from fewshift.nets.folded_block import fold_block
from fewshift.nets.folded_resnet import cannot_fold
from fewshift.nets.resnet import ResNet18, block_names
from fewshift.nets.stacks import Stacks, stacks_of


@dataclass(frozen=True)
class Conv:
    """A folded 3x3 convolution; kernel and bias in the activations' type, the rest in the weights' own."""

    site: str
    kernel: Tensor  # (out, in, 3, 3), channels-last
    bias: Tensor  # (out,)
    centre: Tensor  # (out, in), what the adapter is added to
    scale: Tensor  # (out,)
    stride: int


@dataclass(frozen=True)
class Block:
    """Two convolutions and perhaps a projection, whose bias the second convolution has."""

    first: Conv
    second: Conv
    projection: Tensor | None  # (out, in)


@dataclass(frozen=True)
class FrozenNet:
    """All that does not depend on a task."""

    stem: Tensor  # (width, 3, 5, 5)
    stem_bias: Tensor
    stem_padding: int
    blocks: tuple[Block, ...]
    last: Tensor  # (d, d)
    stacks: Stacks

    @property
    def dtype(self) -> torch.dtype:
        """The activations' type."""
        return self.stem.dtype

    @property
    def convs(self) -> tuple[Conv, ...]:
        """The sixteen adapted convolutions."""
        return tuple(conv for block in self.blocks for conv in (block.first, block.second))


def cannot_graph(backbone: Backbone) -> str | None:
    """Why there are no graphs for a backbone; None when there are."""
    why_not = cannot_fold(backbone)
    if why_not is None and backbone.sites != resnet18_adapters().sites:
        return "graphs are for all seventeen sites of the ResNet18 together"
    return why_not


def frozen_net(backbone: Backbone, dtype: torch.dtype) -> FrozenNet:
    """Fold a backbone for activations of this type."""
    why_not = cannot_graph(backbone)
    if why_not:
        raise FewshiftError(f"there are no graphs for this backbone ({why_not}): choose the folded engine")
    net, frozen = backbone.net, backbone.frozen
    assert isinstance(net, ResNet18)
    eps = net.bn1.eps
    stem = fold(frozen, "conv1", "bn1", stride=2, eps=eps, transform=False)
    blocks = []
    for name in block_names():
        block = fold_block(frozen, name, eps, transform=False)
        more = None if block.projection is None else block.projection.bias
        projection = None if block.projection is None else block.projection.kernel[..., 0, 0].to(dtype)
        first = _conv(f"{name}.conv1", block.first, None, dtype)
        blocks.append(Block(first, _conv(f"{name}.conv2", block.second, more, dtype), projection))
    kernel = stem.kernel.to(dtype, memory_format=torch.channels_last)
    start = backbone.init()
    ordered = {site: start[site] for site in backbone.sites}
    return FrozenNet(
        kernel,
        stem.bias.to(dtype),
        net.stem_padding,
        tuple(blocks),
        frozen["last.weight"],
        stacks_of(ordered),
    )


def _conv(site: str, folded: Folded, more: Tensor | None, dtype: torch.dtype) -> Conv:
    bias = folded.bias if more is None else folded.bias + more
    kernel = folded.kernel.to(dtype, memory_format=torch.channels_last)
    return Conv(site, kernel, bias.to(dtype), folded.centre.clone(), folded.scale, folded.stride)
