"""Networks that a kit can name: how each is described in the file, and how it is built again."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from fewshift.errors import FewshiftError
from fewshift.nets.adapters import adapters_at
from fewshift.nets.any_module import WithLastMap
from fewshift.nets.backbone import Backbone, fingerprint_of, freeze, named_tensors
from fewshift.nets.kit_value import ImageSettings, Kit
from fewshift.nets.learned import blank
from fewshift.nets.lite0 import CENTRE, PACKAGE, SPREAD, Lite0, lite0
from fewshift.nets.resnet import ResNet18
from fewshift.nets.timm_models import timm_model

TIMM = "timm:"  # before the name of a timm model, where a kit is named
LITE0_SIZE = 160  # of 96, 128 and 160 the best on validation tasks; its weights were trained at 224
LITE0_IMAGES = ImageSettings(LITE0_SIZE, "practical", (CENTRE,) * 3, (SPREAD,) * 3)


def described(net: nn.Module) -> dict[str, Any] | None:
    """What a kit says of a network; None for one that only its owner can build."""
    if type(net) is ResNet18:
        return {"name": "ResNet18", "width": net.width, "stem_padding": net.stem_padding}
    if type(net) is Lite0:
        return {"name": "lite0"}
    if isinstance(net, WithLastMap) and net.origin is not None:
        return dict(net.origin)
    return None


def comes_from_a_package(architecture: Mapping[str, Any] | None) -> bool:
    """Are the weights in an installed package, so that a kit needs their fingerprint only?"""
    return architecture is not None and architecture["name"] in ("lite0", "timm")


def available(architecture: Mapping[str, Any] | None) -> bool:
    """Is the package installed that carries the weights?"""
    package = {"lite0": PACKAGE, "timm": "timm"}.get(architecture["name"]) if architecture else None
    return package is not None and importlib.util.find_spec(package) is not None


def with_weights(architecture: Mapping[str, Any]) -> nn.Module:
    """The network with the weights that its package carries."""
    if architecture["name"] == "lite0":
        return lite0()
    return timm_model(architecture["model"], architecture["pretrained"])[0]


def its_package_has(backbone: Backbone) -> bool:
    """Does a package carry just these weights, so that a kit may leave them out? Not if they were trained."""
    architecture = described(backbone.net)
    if architecture is None or not comes_from_a_package(architecture):
        return False
    try:
        with torch.random.fork_rng(devices=[]):  # a network draws its first weights
            packaged = with_weights(architecture)
    except FewshiftError:  # it is not here, and nobody can tell
        return False
    return fingerprint_of(named_tensors(packaged)) == backbone.fingerprint()


def empty(architecture: Mapping[str, Any]) -> nn.Module:
    """The network for a kit that holds its weights: those it has mean nothing."""
    name = architecture["name"]
    if name == "timm":  # whole numbers that it computes itself are in no kit
        return timm_model(architecture["model"], pretrained=False)[0]
    if name == "ResNet18":
        return blank(lambda: ResNet18(architecture["width"], architecture["stem_padding"]))
    if name == "lite0":
        return blank(Lite0)
    raise FewshiftError(f"this Fewshift knows no network {name!r}: update it")


def bare_kit(name: str) -> Kit | None:
    """A kit of a known network alone, its last map as the only site; None where the name is unknown."""
    net: nn.Module
    if name == "lite0":
        net, images = lite0(), LITE0_IMAGES
    elif name.startswith(TIMM):
        net, images = timm_model(name.removeprefix(TIMM))
    else:
        return None
    return Kit(freeze(net, adapters_at(net, ())), images)
