"""The frozen ResNet-18 as a GPU wants it: batch norm folded, one number type, channels-last."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fewshift.errors import FewshiftError
from fewshift.nets.adapters import resnet18_adapters
from fewshift.nets.backbone import Backbone
from fewshift.nets.folded import Folded, fold
from fewshift.nets.folded_block import FoldedBlock, fold_block
from fewshift.nets.folded_resnet import cannot_fold
from fewshift.nets.resnet import ResNet18, block_names
from fewshift.nets.stacks import Stacks, stacks_of


@dataclass(frozen=True)
class FrozenNet:
    """All that does not depend on a task."""

    stem: Folded
    stem_padding: int
    blocks: tuple[FoldedBlock, ...]  # the second convolutions' biases have the projections' in them
    last: Tensor  # (d, d)
    stacks: Stacks

    @property
    def dtype(self) -> torch.dtype:
        """The activations' type."""
        return self.stem.kernel.dtype

    @property
    def convs(self) -> tuple[Folded, ...]:
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
    if why_not := cannot_graph(backbone):
        raise FewshiftError(f"there are no graphs for this backbone ({why_not}): choose the folded engine")
    net, frozen = backbone.net, backbone.frozen
    assert isinstance(net, ResNet18)
    eps = net.bn1.eps
    stem = fold(frozen, "conv1", "bn1", stride=2, eps=eps, transform=False)
    blocks = [fold_block(frozen, name, eps, transform=False) for name in block_names()]
    joined = [replace(block, second=replace(block.second, bias=block.bias)) for block in blocks]
    start = backbone.init()
    return FrozenNet(
        stem.rounded(dtype),
        net.stem_padding,
        tuple(block.rounded(dtype) for block in joined),
        frozen["last.weight"],
        stacks_of({site: start[site] for site in backbone.sites}),
    )
