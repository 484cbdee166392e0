"""Kits whose tasks hold features instead of images, and kits with other sites."""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from fewshift.errors import FewshiftError
from fewshift.nets.adapters import LAST, adapters_at
from fewshift.nets.backbone import freeze
from fewshift.nets.kit_value import Kit
from fewshift.nets.last_map import last_map_of, why_not_last_only


def moves_only_the_last_map(kit: Kit) -> bool:
    """Can tasks of this kit be made of features, computed once per image?"""
    return why_not_last_only(kit.backbone) is None


def on_features(kit: Kit) -> Kit:
    """The same kit for tasks that hold features below the last map; methods and engines stay the same."""
    if more := why_not_last_only(kit.backbone):
        raise FewshiftError(f"tasks of features need a kit whose last map alone moves, but {more}")
    return replace(kit, backbone=last_map_of(kit.backbone))


def with_sites(kit: Kit, text: str) -> Kit:
    """The kit's backbone with other sites, and nothing learned yet.

    `text` is `last`, `pointwise` (every pointwise convolution, and the last map) or names with commas.
    """
    net, last = kit.backbone.net, kit.backbone.sites[-1]
    names = [word.strip() for word in text.split(",") if word.strip() not in ("", LAST, last)]
    if names == ["pointwise"]:
        names = [
            name
            for name, layer in net.named_modules()
            if isinstance(layer, nn.Conv2d) and layer.kernel_size == (1, 1) and layer.groups == 1
        ]
    backbone = freeze(net, adapters_at(net, names, last))
    return Kit(backbone, kit.images, info={k: v for k, v in kit.info.items() if k == "backbone"})
