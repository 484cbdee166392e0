"""Batch norm by the moments of a set of images, which other images are then normalised by, too.

FLUTE's and Proto-MAML's networks keep no running averages: the support set gives mean and variance of every
norm (population variance, gradients flow through both), and queries reuse those very numbers. So a query
never sees another one. Training needs support and query in one pass, with gradients through the moments
(`by_first_rows`); after it, norms are handed the moments as numbers (`with_moments_of`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from fewshift.errors import FewshiftError
from fewshift.nets.backbone import SWAP, Backbone, copied, listening
from fewshift.types import TaskParams


def by_own_moments(backbone: Backbone) -> Backbone:
    """The same network, normalised by the moments of the images of each call. Nothing is averaged or kept.

    The rest stays at rest: dropout would make a task's numbers change from call to call.
    """
    net = copied(backbone.net).eval()
    for norm in _norms(net).values():
        norm.track_running_stats = False
        norm.train()
    return replace(backbone, net=net)


@torch.no_grad()
def with_moments_of(
    backbone: Backbone, own: Backbone, params: TaskParams, images: Tensor
) -> tuple[Backbone, Tensor]:  # (n, 3, h, w) -> backbone, (n, d)
    """`backbone` with the moments of these images in place of its averages, and the images' features.

    `own` is `by_own_moments(backbone)`. The moments are those under `params`: use both together.
    """
    found: dict[str, Tensor] = {}

    def keep(name: str, _norm: nn.Module, values: Tensor) -> None:
        variance, mean = torch.var_mean(values, dim=(0, 2, 3), correction=0)
        found[f"{name}.running_mean"], found[f"{name}.running_var"] = mean, variance

    with listening(own.net, _norms(own.net), keep):
        features = own(params, images)
    return replace(backbone, frozen={**backbone.frozen, **found}), features


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
    for name, norm in _norms(net).items():
        if type(norm) is not nn.BatchNorm2d:  # it may do more than a norm, which would be lost
            raise FewshiftError(
                f"{name} is a {type(norm).__name__}, which cannot take the support set's moments: "
                "use running averages (--norm running)"
            )
        net.set_submodule(name, _FirstRowsNorm(norm, rows))
    kept = {
        name: t for name, t in backbone.frozen.items() if not name.rpartition(".")[2].startswith("running_")
    }
    return JointFeatures(replace(backbone, net=net, frozen=kept), rows)


class _Rows:
    """How many rows of a batch give the moments: one number that all norms of a network share."""

    count = 0


class _FirstRowsNorm(nn.Module):
    """A batch norm by mean and population variance of the first rows, for all rows."""

    def __init__(self, norm: nn.BatchNorm2d, rows: _Rows) -> None:
        super().__init__()
        self.weight, self.bias, self.eps, self.rows = norm.weight, norm.bias, norm.eps, rows

    def forward(self, x: Tensor) -> Tensor:  # (n, c, h, w) -> (n, c, h, w)
        variance, mean = torch.var_mean(x[: self.rows.count], dim=(0, 2, 3), correction=0)
        scale = self.weight * (variance + self.eps).rsqrt()
        shift = self.bias - mean * scale
        return x * scale[:, None, None] + shift[:, None, None]


def _norms(net: nn.Module) -> dict[str, nn.BatchNorm2d]:
    return {name: module for name, module in net.named_modules() if isinstance(module, nn.BatchNorm2d)}
