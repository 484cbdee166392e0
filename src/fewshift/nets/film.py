"""FiLM: a scale and a shift for every channel behind a batch norm, as a change of that norm's own weights.

A FiLM on a norm's output, (1 + s)·(w·x̂ + b) + t, is a norm of weight (1 + s)·w and bias (1 + s)·b + t. So
no layer is added. A set of FiLM parameters is site -> (2, channels): row 0 is s, row 1 is t. Zeros change
nothing, sets blend linearly, and a decay pulls towards the network as it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from fewshift.errors import FewshiftError
from fewshift.nets.backbone import Backbone
from fewshift.nets.resnet import block_names
from fewshift.types import TaskParams, Weights


@dataclass(frozen=True)
class FilmSites:
    """FiLM behind these batch norms: an adapter set, so that a backbone takes FiLM as its task parameters."""

    sites: tuple[str, ...]

    def init(self, frozen: Weights) -> TaskParams:
        """Zeros: the network as it is."""
        return {site: torch.zeros_like(frozen[f"{site}.weight"]).expand(2, -1).clone() for site in self.sites}

    def merge(self, frozen: Weights, params: TaskParams) -> dict[str, Tensor]:
        """All weights of the network under these scales and shifts."""
        return modulate(frozen, params)


def modulate(frozen: Weights, film: TaskParams) -> dict[str, Tensor]:  # site -> (2, c)
    """The weights of a network with this FiLM behind its norms; norms without any stay as they are."""
    merged = dict(frozen)
    for site, (scale, shift) in film.items():
        merged[f"{site}.weight"] = (1 + scale) * frozen[f"{site}.weight"]
        merged[f"{site}.bias"] = (1 + scale) * frozen[f"{site}.bias"] + shift
    return merged


def block_norms() -> tuple[str, ...]:
    """Where CNAPs puts FiLM: behind both norms of every block; not in the stem, not in projections."""
    return tuple(f"{block}.{norm}" for block in block_names() for norm in ("bn1", "bn2"))


def film_backbone(backbone: Backbone) -> Backbone:
    """The same frozen network, whose task parameters are FiLM behind the norms of its blocks."""
    return replace(backbone, adapters=FilmSites(block_norms()))


def every_norm(net: nn.Module) -> tuple[str, ...]:
    """Where FLUTE puts it: behind every norm, stem and projections included."""
    return tuple(name for name, module in net.named_modules() if isinstance(module, nn.BatchNorm2d))


def channels(backbone: Backbone, sites: tuple[str, ...]) -> dict[str, int]:
    """How many channels each of these norms has."""
    missing = [site for site in sites if f"{site}.weight" not in backbone.frozen]
    if missing:
        raise FewshiftError(
            f"the backbone has no norm {missing[0]}: this method modulates the blocks of a ResNet18"
        )
    return {site: len(backbone.frozen[f"{site}.weight"]) for site in sites}


def norms_as_film(
    backbone: Backbone, domains: int, *, fresh: bool = False
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:  # weights, site -> (K, 2, c)
    """Weights whose norms scale by 1 and shift by 0, and for each domain the FiLM that does it instead.

    The two together are the backbone; `fresh` FiLM is the identity.
    """
    weights = {name: tensor.detach().clone() for name, tensor in backbone.frozen.items()}
    films = {}
    for site in every_norm(backbone.net):
        scale, shift = weights[f"{site}.weight"], weights[f"{site}.bias"]
        film = torch.stack([scale - 1, shift])
        films[site] = (torch.zeros_like(film) if fresh else film).expand(domains, 2, -1).clone()
        weights[f"{site}.weight"], weights[f"{site}.bias"] = torch.ones_like(scale), torch.zeros_like(shift)
    return weights, films
