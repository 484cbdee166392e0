"""Any model of the timm library by its name, where timm is installed (the `timm` extra)."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, Literal

from torch import nn

from fewshift.errors import FewshiftError
from fewshift.nets.any_module import WithLastMap, feature_size
from fewshift.nets.kit_value import ImageSettings


def timm_model(name: str, pretrained: bool = True) -> tuple[WithLastMap, ImageSettings]:
    """The model without its classes, with a last map behind it, and the images that its weights expect."""
    timm = _timm()
    try:
        net: nn.Module = timm.create_model(name, pretrained=pretrained, num_classes=0)
    except (RuntimeError, ValueError) as problem:
        near = ", ".join(timm.list_models(f"*{name.split('.')[0][:8]}*")[:6])
        hint = f"; names like it: {near}" if near else ""
        raise FewshiftError(f"timm cannot make {name!r} ({_first_line(problem)}){hint}") from problem
    except OSError as problem:
        raise FewshiftError(
            f"timm cannot fetch the weights of {name!r} ({_first_line(problem)}): "
            "fetch them once where there is a network"
        ) from problem
    origin = {"name": "timm", "model": name, "pretrained": pretrained}
    settings = image_settings(timm.data.resolve_model_data_config(net))
    # Not `num_features`: some families put another layer between those and what comes out.
    return WithLastMap(net.eval(), feature_size(net, settings.size), origin), settings


def image_settings(config: dict[str, Any]) -> ImageSettings:
    """A pixel rule from what timm says of a model's images. The whole picture is used, nothing is cropped."""
    _, height, width = config["input_size"]
    if height != width:
        raise FewshiftError(f"this model reads {height} x {width} pixels: only square ones are supported")
    cubic: Literal["bilinear", "bicubic"] = (
        "bicubic" if config.get("interpolation") == "bicubic" else "bilinear"
    )
    return ImageSettings(height, "practical", _three(config["mean"]), _three(config["std"]), filter=cubic)


def _three(values: Sequence[float]) -> tuple[float, float, float]:
    red, green, blue = values
    return float(red), float(green), float(blue)


def _timm() -> Any:
    try:
        return importlib.import_module("timm")
    except ImportError as problem:
        if problem.name == "timm":
            raise FewshiftError(
                "timm models need the timm library: run pip install 'fewshift[timm]'"
            ) from None
        raise FewshiftError(
            f"timm is installed but cannot be imported ({problem}): mend it first"
        ) from problem
    except RuntimeError as problem:  # torchvision beside a torch it was not built for
        raise FewshiftError(
            f"timm is installed but cannot be imported ({_first_line(problem)}): "
            "install the torchvision that belongs to your torch"
        ) from problem


def _first_line(problem: Exception) -> str:
    return str(problem).splitlines()[0] if str(problem) else type(problem).__name__
