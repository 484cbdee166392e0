"""Support and query images in one pass, all normalised by the moments of the support images.

Gradients flow through the moments, which is why training needs this: norms that are handed moments as numbers
(`nets.moments`) are for the time after it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from fewshift.errors import FewshiftError
from fewshift.nets.backbone import SWAP, Backbone, copied
from fewshift.types import TaskParams


class _Rows:
    """How many rows of a batch give the moments: one number that all norms of a network share."""

    count = 0


class FirstRowsNorm(nn.Module):
    """A batch norm by mean and population variance of the first rows, for all rows."""

    def __init__(self, norm: nn.BatchNorm2d, rows: _Rows) -> None:
        super().__init__()
        self.weight, self.bias, self.eps, self.rows = norm.weight, norm.bias, norm.eps, rows

    def forward(self, x: Tensor) -> Tensor:  # (n, c, h, w) -> (n, c, h, w)
        """The rows, normalised."""
        variance, mean = torch.var_mean(x[: self.rows.count], dim=(0, 2, 3), correction=0)
        scale = self.weight * (variance + self.eps).rsqrt()
        shift = self.bias - mean * scale
        return x * scale[:, None, None] + shift[:, None, None]


@dataclass(frozen=True)
class JointFeatures:
    """Features of images normalised by the moments of the first ones among them."""

    backbone: Backbone
    rows: _Rows

    def __call__(self, params: TaskParams, images: Tensor, first: int) -> Tensor:  # (n, 3, h, w) -> (n, dim)
        """Differentiable in the parameters, through the moments too."""
        with SWAP:
            self.rows.count = first
            return self.backbone(params, images)


def by_first_rows(backbone: Backbone) -> JointFeatures:
    """The same network with norms that look at the first rows only."""
    net, rows = copied(backbone.net), _Rows()
    for name, module in list(net.named_modules()):
        if isinstance(module, nn.BatchNorm2d):
            if type(module) is not nn.BatchNorm2d:  # it may do more than a norm, which would be lost
                raise FewshiftError(
                    f"{name} is a {type(module).__name__}, which cannot take the support set's moments: "
                    "use running averages (--norm running)"
                )
            owner, _, own = name.rpartition(".")
            setattr(net.get_submodule(owner), own, FirstRowsNorm(module, rows))
    kept = {
        name: t for name, t in backbone.frozen.items() if not name.rpartition(".")[2].startswith("running_")
    }
    return JointFeatures(replace(backbone, net=net, frozen=kept), rows)
