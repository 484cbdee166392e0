"""A backbone from any network: name the layers that carry task parameters, and that is all.

>>> import torch
>>> net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 1), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
>>> backbone_from(net, sites=("0",)).sites
('net.0', 'last')
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fewshift.errors import FewshiftError
from fewshift.nets.adapters import LAST, adapters_at
from fewshift.nets.backbone import Backbone, freeze


class WithLastMap(nn.Module):
    """A network whose output is the feature, followed by `last`, a linear map that starts at the identity.

    `origin` is how to build the network again, for a kit; None: who loads the kit passes the network.
    """

    def __init__(self, net: nn.Module, dim: int, origin: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.net, self.dim, self.origin = net, dim, origin
        self.last = nn.Linear(dim, dim, bias=False)
        nn.init.eye_(self.last.weight)

    def forward(self, images: Tensor) -> Tensor:  # (n, 3, h, w) -> (n, dim)
        """The features of these images."""
        features: Tensor = self.last(self.net(images))
        return features


def backbone_from(
    net: nn.Module, sites: Sequence[str] = (), *, size: int = 64, origin: Mapping[str, Any] | None = None
) -> Backbone:
    """A frozen backbone from a network that turns (n, 3, h, w) into features (n, dim).

    `sites` names layers of `net` from the image to the feature: linear ones, pointwise convolutions, and
    others with odd kernels. They get residual adapters. A network without a linear layer `last` at its end
    gets one, and its own layers are then called `net.…`. `size` is the side of the image that finds `dim`.
    """
    if isinstance(getattr(net, LAST, None), nn.Linear):
        return freeze(net, adapters_at(net, sites))
    wrapped = WithLastMap(net, feature_size(net, size), origin).to(_like(net))
    return freeze(wrapped, adapters_at(wrapped, [f"net.{site}" for site in sites]))


@torch.no_grad()
def feature_size(net: nn.Module, size: int) -> int:
    """The length of a network's output for one picture."""
    training = net.training
    try:
        output = net.eval()(_like(net).new_zeros(1, 3, size, size))
    except RuntimeError as problem:
        raise FewshiftError(
            f"{type(net).__name__} does not take a picture of {size} x {size} "
            f"({str(problem).splitlines()[0]}): give its own size"
        ) from problem
    finally:
        net.train(training)
    if not isinstance(output, Tensor) or output.ndim != 2:
        shape = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise FewshiftError(
            f"{type(net).__name__} gives {shape} for one picture, not (1, dim): "
            "end it with pooling and Flatten"
        )
    return output.shape[1]


def _like(net: nn.Module) -> Tensor:
    """A tensor of the network's type, where the network is."""
    return next((p.detach() for p in net.parameters() if p.is_floating_point()), torch.zeros(()))
