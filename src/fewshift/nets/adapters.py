"""How task parameters enter a frozen network: a pure function from weights and parameters to weights.

A residual 1x1 convolution beside a 3x3 convolution of the same stride reads the input where the centre tap
of the 3x3 kernel reads it. So adding the adapter to that tap is the adapter, and no module is replaced
(TSA, Li et al. 2022).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from fewshift.nets.resnet import block_names
from fewshift.types import TaskParams, Weights

START = 1e-4  # TSA's initial adapter is this times a rectangular identity
LAST = "last"  # the site of pre-classifier alignment


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
    """Residual matrix adapters on 3x3 convolutions and a replaced last linear map: TSA's best form."""

    convs: tuple[str, ...]  # convolutions with odd kernels, padded by half their size
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
    """A kernel equal to `kernel` beside a 1x1 convolution by `adapter`."""
    reach = kernel.shape[-1] // 2
    return kernel + F.pad(adapter[..., None, None], (reach,) * 4)


def resnet18_adapters() -> ResidualAdapters:
    """TSA's sites: the sixteen 3x3 convolutions inside the blocks, and `last`; no stem, no projections."""
    return ResidualAdapters(
        tuple(f"{block}.{conv}" for block in block_names() for conv in ("conv1", "conv2"))
    )
