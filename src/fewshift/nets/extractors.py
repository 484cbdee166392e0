"""Several extractors of one architecture, one per training domain, as a part of a kit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fewshift.core.centroids import unit
from fewshift.errors import FewshiftError
from fewshift.nets.backbone import Backbone
from fewshift.nets.kit import Kit, Part
from fewshift.nets.resnet import ResNet18
from fewshift.nets.tensor_file import join, part

PART = "extractors"
REMEDY = "fewshift train extractors"


@dataclass(frozen=True)
class Extractors:
    """K frozen networks. They share one module, into which each one's weights are put for a call."""

    domains: tuple[str, ...]
    backbones: tuple[Backbone, ...]

    @torch.no_grad()
    def __call__(self, images: Tensor) -> Tensor:  # (n, 3, h, w) -> (n, k, d)
        """Every extractor's feature of every image, each of length one."""
        return unit(torch.stack([backbone.embed(images) for backbone in self.backbones], dim=1))


def extractors_of(kit: Kit) -> Extractors:
    """The kit's extractors, in the type and place of its backbone."""
    home = kit.backbone
    held = kit.part(PART, REMEDY).to(home.device, home.dtype)
    domains = tuple(held.settings["domains"])
    return Extractors(domains, tuple(replace(home, frozen=part(held.tensors, name)) for name in domains))


def extractors_part(kit: Kit, backbones: Mapping[str, Backbone], dtype: torch.dtype | None = None) -> Part:
    """The extractors as a part of this kit, whose backbone's architecture they must have.

    A `dtype` of 16 bits halves the part; the extractors are then those that the rounded weights make.
    """
    if not backbones:
        raise FewshiftError("there are no extractors to collect: name one domain at least")
    tensors = {}
    for domain, backbone in backbones.items():
        ours, theirs = (_shapes(b) for b in (kit.backbone, backbone))
        if ours != theirs:
            odd = next(name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name))
            raise FewshiftError(
                f"the extractor of {domain} has another architecture than the kit's backbone ({odd} is "
                f"{theirs.get(odd)}, not {ours.get(odd)}): train one like that"
            )
        tensors[domain] = {name: t.to("cpu", dtype or t.dtype) for name, t in backbone.frozen.items()}
        if not all(tensor.isfinite().all() for tensor in tensors[domain].values()):
            raise FewshiftError(f"the extractor of {domain} does not fit into 16 bits: keep all of them")
    return Part(join(tensors), {"domains": list(backbones)})


def _shapes(backbone: Backbone) -> dict[str, tuple[int, ...]]:
    """What two backbones of one architecture share; the stem's padding shows in no weight."""
    net = backbone.net
    padding = {"stem padding": (net.stem_padding,)} if isinstance(net, ResNet18) else {}
    return {**padding, **{name: tuple(tensor.shape) for name, tensor in backbone.frozen.items()}}
