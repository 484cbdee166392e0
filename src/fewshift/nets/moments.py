"""Batch norm by the moments of a set of images, which other images are then normalised by, too.

FLUTE's and Proto-MAML's networks keep no running averages: the support set gives mean and variance of every
norm (population variance, gradients flow through both), and queries reuse those very numbers. So a query
never sees another one.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from fewshift.nets.backbone import SWAP, Backbone, copied
from fewshift.types import TaskParams


def by_own_moments(backbone: Backbone) -> Backbone:
    """The same network, normalised by the moments of the images of each call. Nothing is averaged or kept."""
    return replace(backbone, net=without_averages(backbone.net))


def without_averages(net: nn.Module) -> nn.Module:
    """A copy whose norms use the moments of what they are given and leave their buffers alone.

    The rest stays at rest: dropout would make a task's numbers change from call to call.
    """
    net = copied(net).eval()
    for norm in _norms(net).values():
        norm.track_running_stats = False
        norm.train()
    return net


@torch.no_grad()
def with_moments_of(
    backbone: Backbone, own: Backbone, params: TaskParams, images: Tensor
) -> tuple[Backbone, Tensor]:  # (n, 3, h, w) -> backbone, (n, d)
    """`backbone` with the moments of these images in place of its averages, and the images' features.

    `own` is `by_own_moments(backbone)`. The moments are those under `params`: use both together.
    """
    found: dict[str, Tensor] = {}

    def keep(name: str, values: Tensor) -> None:
        variance, mean = torch.var_mean(values, dim=(0, 2, 3), correction=0)
        found[f"{name}.running_mean"], found[f"{name}.running_var"] = mean, variance

    with SWAP:  # hooks are on the module that all threads share
        hooks = [
            norm.register_forward_pre_hook(lambda _module, given, name=name: keep(name, given[0]))
            for name, norm in _norms(own.net).items()
        ]
        try:
            features = own(params, images)
        finally:
            for hook in hooks:
                hook.remove()
    return replace(backbone, frozen={**backbone.frozen, **found}), features


def _norms(net: nn.Module) -> dict[str, nn.BatchNorm2d]:
    return {name: module for name, module in net.named_modules() if isinstance(module, nn.BatchNorm2d)}
