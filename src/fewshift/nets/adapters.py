"""How task parameters enter a frozen network: a pure function from weights and parameters to weights.

A residual 1x1 convolution beside a 3x3 convolution of the same stride reads the input where the centre tap
of the 3x3 kernel reads it. So adding the adapter to that tap is the adapter, and no module is replaced
(TSA, Li et al. 2022). Beside a pointwise convolution or a linear layer it is the layer's own kind of map.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fewshift.errors import FewshiftError
from fewshift.nets.lite0 import SamePadded
from fewshift.nets.resnet import block_names
from fewshift.types import TaskParams, Weights

START = 1e-4  # TSA's initial adapter is this times a rectangular identity
LAST = "last"  # the site of pre-classifier alignment
PLAIN = (nn.Linear.forward, nn.Conv2d.forward, SamePadded.forward)  # which apply their weight as it is


class AdapterSet(Protocol):
    """Where a network's task parameters are and what they do to its weights."""

    @property
    def sites(self) -> tuple[str, ...]:
        """The names of the layers that carry task parameters, from the image to the feature."""
        ...

    def init(self, frozen: Weights) -> TaskParams:
        """The parameters every task starts from."""
        ...

    def merge(self, frozen: Weights, params: TaskParams) -> dict[str, Tensor]:
        """All weights of the network under these parameters."""
        ...


@dataclass(frozen=True)
class ResidualAdapters:
    """Residual matrix adapters beside layers and a replaced last linear map: TSA's best form."""

    convs: tuple[str, ...]  # convolutions with odd kernels, padded by half their size, or linear layers
    last: str = LAST

    @property
    def sites(self) -> tuple[str, ...]:
        """The convolutions in order, then the last map."""
        return (*self.convs, self.last)

    def init(self, frozen: Weights) -> TaskParams:
        """1e-4 times the identity at the convolutions, the frozen map (the identity) at the end."""
        params = {}
        for site in self.convs:
            weight = frozen[f"{site}.weight"]
            params[site] = START * torch.eye(*weight.shape[:2], dtype=weight.dtype, device=weight.device)
        return params | {self.last: frozen[f"{self.last}.weight"].clone()}

    def merge(self, frozen: Weights, params: TaskParams) -> dict[str, Tensor]:
        """The frozen weights with each adapter added to the centre tap of its kernel.

        A site without parameters stays as it is.
        """
        merged = dict(frozen)
        for site, param in params.items():
            name = f"{site}.weight"
            merged[name] = param if site == self.last else add_to_centre(frozen[name], param)
        return merged


def add_to_centre(kernel: Tensor, adapter: Tensor) -> Tensor:  # (out, in, k, k), (out, in) -> (out, in, k, k)
    """A kernel equal to `kernel` beside a 1x1 convolution by `adapter`; a linear layer's has no k, k."""
    if kernel.ndim == 2:
        return kernel + adapter
    reach = kernel.shape[-1] // 2
    return kernel + F.pad(adapter[..., None, None], (reach,) * 4)


def resnet18_adapters() -> ResidualAdapters:
    """TSA's sites: the sixteen 3x3 convolutions inside the blocks, and `last`; no stem, no projections."""
    return ResidualAdapters(
        tuple(f"{block}.{conv}" for block in block_names() for conv in ("conv1", "conv2"))
    )


def adapters_at(net: nn.Module, sites: Sequence[str], last: str = LAST) -> ResidualAdapters:
    """Adapters beside the layers of these names, which come from the image to the feature, and the last map.

    A layer can be a linear one or a convolution without groups whose centre tap reads the input at the
    output's place; a depthwise one mixes no channels, so there a matrix would be another layer altogether.
    """
    layers = dict(net.named_modules())
    for site in (*sites, last):
        if site not in layers:
            known = [name for name, layer in layers.items() if not _why_not(layer)]
            raise FewshiftError(
                f"{type(net).__name__} has no layer {site!r}: choose among {', '.join(known) or 'none'}"
            )
        if fault := _why_not(layers[site]):
            raise FewshiftError(f"{site} cannot carry task parameters: {fault}; choose other layers")
    if not isinstance(layers[last], nn.Linear):
        raise FewshiftError(f"{last} is a {type(layers[last]).__name__}: the last map must be a linear layer")
    return ResidualAdapters(tuple(site for site in sites if site != last), last)


def _why_not(layer: nn.Module) -> str | None:
    if not isinstance(layer, nn.Linear | nn.Conv2d):
        return f"it is a {type(layer).__name__}, neither a linear layer nor a convolution"
    if "weight" not in dict(layer.named_parameters(recurse=False)):
        return "its weight is computed from other parameters"
    if type(layer).forward not in PLAIN:
        return f"it is a {type(layer).__name__}, which may do something of its own with its weight"
    if isinstance(layer, nn.Linear):
        return None
    if layer.groups != 1:
        return f"its channels are in {layer.groups} groups"
    if layer.kernel_size == (1, 1):
        return None if layer.padding in ((0, 0), "valid", "same") else "it is padded beyond its kernel"
    halves = tuple(size // 2 for size in layer.kernel_size)
    odd = all(size % 2 for size in layer.kernel_size) and layer.kernel_size[0] == layer.kernel_size[1]
    if not odd or layer.padding != halves or layer.dilation != (1, 1):
        return "its kernel is not a square of odd size, padded by half of it"
    return None
