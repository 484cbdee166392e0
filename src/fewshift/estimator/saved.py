"""A fitted classifier as one small file."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch

from fewshift.errors import FewshiftError
from fewshift.estimator import kits
from fewshift.estimator.fitted import Fitted, Settings
from fewshift.estimator.labels import class_array
from fewshift.nets.kit import Kit
from fewshift.nets.tensor_file import Kind, join, part, read_tensors, write_tensors

if TYPE_CHECKING:
    from fewshift.estimator.classifier import FewShotClassifier

CLASSIFIER = Kind("classifier", "fewshift-classifier", version=1)


def write_fitted(path: str | os.PathLike[str], fitted: Fitted, kit: Kit, kit_name: str, method: str) -> None:
    """Write the file, all or nothing."""
    header = {
        "classes": fitted.classes.tolist(),
        "method": method,
        "kit": kit_name,
        "fingerprint": kit.backbone.fingerprint(),
        "images": asdict(kit.images),
        "counts": list(fitted.counts),
        "scale": fitted.scale,
        "unknown_below": fitted.unknown_below,
        "settings": asdict(fitted.settings),
        "coefficients": dict(fitted.coefficients),
        "losses": list(fitted.losses),
    }
    write_tensors(
        os.fspath(path),
        CLASSIFIER,
        header,
        join({"params": fitted.params, "": {"prototypes": fitted.prototypes}}),
    )


def load(path: str | os.PathLike[str], kit: kits.KitLike = None, device: str = "auto") -> FewShotClassifier:
    """A saved classifier, ready to predict."""
    from fewshift.estimator.classifier import FewShotClassifier

    header, tensors = read_tensors(os.fspath(path), CLASSIFIER)
    clf = FewShotClassifier(method=header["method"], kit=header["kit"] if kit is None else kit, device=device)
    clf._open()
    found = clf.kit_.backbone.fingerprint()
    if found != header["fingerprint"]:
        raise FewshiftError(
            f"{path} was fitted on another backbone ({header['fingerprint'][:12]}) than that of the kit "
            f"{clf.kit_name_} ({found[:12]}): give the kit it was fitted with, {header['kit']}, as kit="
        )
    where = clf.kit_.backbone.device

    def here(named: dict[str, Any]) -> dict[str, torch.Tensor]:
        return {site: value.to(where) for site, value in named.items()}

    settings = header["settings"]
    clf.fitted_ = Fitted(
        class_array(header["classes"]),
        here(part(tensors, "params")),
        here(part(tensors, ""))["prototypes"],
        tuple(header["counts"]),
        header["scale"],
        header["unknown_below"],
        Settings(tuple(settings["rates"]), settings["steps"], settings["why"]),
        header["coefficients"],
        tuple(header["losses"]),
    )
    return clf
