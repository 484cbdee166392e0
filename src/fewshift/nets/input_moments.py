"""What the adapted layers read of some images: second moments of their inputs, site by site."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fewshift.core.whitening import second_moment
from fewshift.errors import FewshiftError
from fewshift.nets.backbone import Backbone, listening
from fewshift.nets.last_map import features_below, why_not_last_only
from fewshift.types import TaskParams

CHUNK = 64  # images whose inputs are held at once


@torch.no_grad()
def input_moments(
    backbone: Backbone, params: TaskParams, images: Tensor
) -> dict[str, Tensor]:  # (n, 3, h, w) -> site -> (in, in)
    """The second moment of what each site in `params` reads, over images and pixels.

    Of a convolution these are the pixels at its stride, which is where the centre of its kernel stands.
    """
    if set(params) <= {backbone.sites[-1]} and not why_not_last_only(backbone):
        # the features that it reads may be known already
        return {site: second_moment(features_below(backbone)(images)) for site in params}
    sums: dict[str, Tensor] = {}

    def watch(site: str, layer: nn.Module, read: Tensor) -> None:
        found = second_moment(rows_of(layer, read)) * len(read)
        sums[site] = sums[site] + found if site in sums else found

    with listening(backbone.net, params, watch):
        for part in torch.split(images, CHUNK):
            backbone(params, part)
    if unread := [site for site in params if site not in sums]:
        raise FewshiftError(
            f"what {', '.join(unread)} reads cannot be watched, because the network takes its weight without "
            "calling it: leave it out of the sites, or choose a method that whitens nothing"
        )
    return {site: total / len(images) for site, total in sums.items()}


def rows_of(layer: nn.Module, read: Tensor) -> Tensor:  # (n, ..., c) or (n, c, h, w) -> (rows, c)
    """A layer's input as rows of channels, at a convolution's stride."""
    if not isinstance(layer, nn.Conv2d):
        return read.flatten(0, -2)
    down, across = layer.stride
    return read[:, :, ::down, ::across].permute(0, 2, 3, 1).flatten(0, 2)
