"""A fitted classifier as one small safetensors file.

The frozen weights stay in the kit, of which the file keeps the name and the backbone's fingerprint. Paths and
file names of the support images are not kept.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fewshift.data.pixels import PixelRule
from fewshift.data.whole_files import check_place
from fewshift.errors import FewshiftError
from fewshift.estimator import kits
from fewshift.estimator.adapting import Support
from fewshift.estimator.classifier import FewShotClassifier
from fewshift.estimator.fitted import Fitted, Settings
from fewshift.estimator.labels import class_array, from_json, to_json
from fewshift.estimator.modes import own_modes
from fewshift.estimator.unknown import Familiar
from fewshift.nets.architectures import TIMM, described
from fewshift.nets.bundled import bundled_kits
from fewshift.nets.choice import why_not_in
from fewshift.nets.kit import Kit, load_kit, save_kit
from fewshift.nets.tensor_file import Kind, join, part, read_tensors, write_tensors

CLASSIFIER = Kind("classifier", "fewshift-classifier", version=1)


def write_classifier(
    path: str | os.PathLike[str],
    fitted: Fitted,
    opened: kits.Opened,
    method: str,
    *,
    mode: str = "auto",
    seed: int = 0,
    precision: str = "auto",
    support: Support | None = None,
    with_backbone: bool = False,
) -> None:
    """Write the file, all or nothing."""
    check_place(path)
    header = {
        "classes": [to_json(label) for label in fitted.classes.tolist()],
        "method": method,
        "parameters": {"settings": mode, "seed": int(seed), "precision": precision},
        "kit": opened.name,
        "fingerprint": opened.kit.backbone.fingerprint(),
        "pixels": asdict(opened.rule),
        "counts": list(fitted.counts),
        "scale": fitted.scale,
        "familiar": asdict(fitted.familiar),
        "settings": asdict(fitted.settings),
        "coefficients": dict(fitted.coefficients),
        "losses": list(fitted.losses),
        "torch": torch.__version__,
    }
    tensors: dict[str, Mapping[str, Tensor]] = {
        "params": fitted.params,
        "classes": {"prototypes": fitted.prototypes},
    }
    if support is not None:
        tensors["support"] = {"images": _levels(support.images, opened.rule), "labels": support.labels}
    if with_backbone:
        kit = opened.kit if support is not None else Kit(opened.kit.backbone, opened.kit.images)
        tensors["kit"] = {"file": _kit_bytes(kit)}
    write_tensors(os.fspath(path), CLASSIFIER, header, join(tensors))


@own_modes()
def load(
    path: str | os.PathLike[str], kit: kits.KitLike = None, *, device: str = "auto", engine: str = "auto"
) -> FewShotClassifier:
    """A saved classifier, ready to predict.

    Its backbone comes from the file itself, from `kit`, or from the bundled kit or the timm model that it was
    fitted with.
    """
    header, tensors = read_tensors(os.fspath(path), CLASSIFIER)
    stored, kept = part(tensors, "kit"), part(tensors, "support")
    name = None  # that of the kit, where it is given or found by its name
    if kit is None and stored:
        kit, name = _own_kit(stored), header["kit"]
    elif kit is None:
        kit = _named(header, path)
    parameters = header["parameters"]
    if parameters["precision"] == "bfloat16" and kits.choose_device(device).type != "cpu":
        parameters["precision"] = "auto"  # the file was made on a CPU
    classifier = FewShotClassifier(
        method=header["method"], kit=kit, device=device, engine=engine, **parameters
    )
    opened = kits.open_kit(kit, device, engine, quiet=True, precision=classifier.precision)
    found = opened.kit.backbone.fingerprint()
    if found != header["fingerprint"]:
        raise FewshiftError(
            f"{path} was fitted on another backbone ({header['fingerprint'][:12]}) than that of the kit "
            f"{opened.name} ({found[:12]}): give the kit {header['kit']} it was fitted with"
        )
    pixels: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in header["pixels"].items()}
    rule = PixelRule(**pixels)
    opened = replace(opened, name=name or opened.name, rule=rule)
    classifier._made_with(opened, kit, (bool(stored), bool(kept)))
    if why_not_in(classifier.precision, opened.engine):  # the next fit has this engine, not that of the file
        classifier.precision = "auto"
    classes = tuple(from_json(value) for value in header["classes"])
    fitted = Fitted(
        classes=class_array(classes),
        params={site: value.to(opened.device) for site, value in part(tensors, "params").items()},
        prototypes=part(tensors, "classes")["prototypes"].to(opened.device),
        counts=tuple(header["counts"]),
        scale=header["scale"],
        familiar=Familiar(**header["familiar"]),
        settings=Settings(**{**header["settings"], "rates": tuple(header["settings"]["rates"])}),
        coefficients=header["coefficients"],
        losses=tuple(header["losses"]),
    )
    classifier._keep(fitted, _support(kept, classes, rule), began=None)
    return classifier


def _support(kept: Mapping[str, Tensor], classes: tuple[Any, ...], rule: PixelRule) -> Support | None:
    if not kept:
        return None
    names = tuple(f"saved image {place}" for place in range(len(kept["labels"])))
    return Support(_from_levels(kept["images"], rule), kept["labels"], names, classes)


def _levels(images: Tensor, rule: PixelRule) -> Tensor:  # (n, 3, s, s) float -> uint8
    """Back to whole grey levels: a quarter of the size, and no difference that an adaptation would notice."""
    mean, std = _channels(rule)
    return ((images * std + mean) * 255).round().clamp(0, 255).to(torch.uint8)


def _from_levels(levels: Tensor, rule: PixelRule) -> Tensor:  # (n, 3, s, s) uint8 -> float
    mean, std = _channels(rule)
    return (levels.to(torch.float32) / 255 - mean) / std


def _channels(rule: PixelRule) -> tuple[Tensor, Tensor]:
    return torch.tensor(rule.mean)[:, None, None], torch.tensor(rule.std)[:, None, None]


def _kit_bytes(kit: Kit) -> Tensor:
    """A kit's file inside this file, with its weights even where a package has them."""
    if described(kit.backbone.net) is None:
        raise FewshiftError(
            f"Fewshift cannot build a {type(kit.backbone.net).__name__} again, so a file cannot carry it: "
            "save without the backbone, and give the kit when loading"
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "backbone.kit"
        save_kit(kit, path, weights=True)
        return torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8)


def _own_kit(stored: Mapping[str, Tensor]) -> Kit:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "backbone.kit"
        path.write_bytes(stored["file"].numpy().tobytes())
        return load_kit(path)


def _named(header: Mapping[str, Any], path: str | os.PathLike[str]) -> str:
    """The kit that the file names, where a name is enough to have it."""
    name = str(header["kit"])
    if name not in bundled_kits() and not name.startswith(TIMM):
        raise FewshiftError(
            f"{path} was fitted with the kit {name!r}, which does not come with Fewshift: "
            "say where that kit's file is (kit= or --kit), or save the classifier with its backbone"
        )
    return name
