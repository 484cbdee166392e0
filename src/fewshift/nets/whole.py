"""A network's own weights as its task parameters: for methods that move the network itself."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from fewshift.nets.adapters import LAST
from fewshift.nets.backbone import Backbone
from fewshift.types import TaskParams, Weights

NORMS = (nn.BatchNorm2d, nn.LayerNorm, nn.GroupNorm)


@dataclass(frozen=True)
class OwnWeights:
    """An adapter set whose parameters replace weights of the network; a site is a weight's full name."""

    sites: tuple[str, ...]

    def init(self, frozen: Weights) -> TaskParams:
        """The weights as they are."""
        return {site: frozen[site].clone() for site in self.sites}

    def merge(self, frozen: Weights, params: TaskParams) -> dict[str, Tensor]:
        """The frozen weights with these in their places."""
        return {**frozen, **params}


def moving(backbone: Backbone, sites: tuple[str, ...]) -> Backbone:
    """The same network with these weights as its task parameters."""
    return replace(backbone, adapters=OwnWeights(sites))


def suited(images: Tensor) -> Tensor:  # (n, 3, h, w) -> (n, 3, h, w)
    """The images in the memory layout that gradients of kernels want: channels last is faster on a GPU.

    On a CPU oneDNN's gradient of a strided 1x1 kernel writes out of bounds in that layout where its input has
    fewer than 16 channels (oneDNN issue 6035).
    """
    layout = torch.channels_last if images.is_cuda else torch.contiguous_format
    return images.contiguous(memory_format=layout)


def every_weight(net: nn.Module) -> tuple[str, ...]:
    """All weights but the last map, which is the identity that alignment starts from."""
    return tuple(name for name, _ in net.named_parameters() if not name.startswith(f"{LAST}."))


def kernels(net: nn.Module) -> tuple[str, ...]:
    """The weights of convolutions (and of linear layers, where there are any): no norms, no biases."""
    shapes = dict(net.named_parameters())
    return tuple(name for name in every_weight(net) if shapes[name].ndim >= 2)


def norm_affine(net: nn.Module) -> tuple[str, ...]:
    """The scales and shifts behind every normalisation."""
    owners = tuple(name for name, module in net.named_modules() if isinstance(module, NORMS))
    return tuple(name for name in every_weight(net) if name.rpartition(".")[0] in owners)
