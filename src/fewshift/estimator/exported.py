"""A fitted classifier as a file for other programs: ONNX, or a program of `torch.export`."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from fewshift import __version__
from fewshift.data.drawn.suite import drawn_domain
from fewshift.data.pixels import PixelRule, prepare
from fewshift.data.whole_files import check_place, write_whole
from fewshift.errors import FewshiftError
from fewshift.estimator import inputs
from fewshift.estimator.classifier import FewShotClassifier
from fewshift.estimator.export_formats import check_onnx_is_installed, onnx_bytes, run_onnx, torch_bytes
from fewshift.estimator.modes import own_modes
from fewshift.nets.plain_classifier import folded_program, plain_classifier

Format: TypeAlias = Literal["onnx", "torch"]
FORMATS: tuple[Format, ...] = ("onnx", "torch")
TOLERANCE = 1e-4


@dataclass(frozen=True)
class Exported:
    """What was written, and how it was checked."""

    path: Path
    size: int  # bytes
    images: int  # that the file's output was compared on
    difference: float  # the largest, in logits or probabilities


@own_modes()
def export(
    classifier: FewShotClassifier,
    path: str | os.PathLike[str],
    *,
    format: Format = "onnx",
    probabilities: bool = False,
    images: inputs.Images = None,
) -> Exported:
    """Write a plain network: prepared images (n, 3, size, size) in, logits or probabilities (n, way) out.

    Before the file gets its name, its output is compared with the classifier's on `images` (None: on drawn
    pictures), as one batch and one by one. Class names, preprocessing and calibration are in its metadata.
    """
    if format not in FORMATS:
        raise FewshiftError(f"there is no format {format!r}: choose one of {', '.join(FORMATS)}")
    check_place(path)
    if format == "onnx":
        check_onnx_is_installed()
    kit, fitted, rule = classifier.kit_, classifier.fitted_, classifier._opened.rule
    pictures = _drawn(rule) if images is None else inputs.read(inputs.items_of(images), rule).images
    output = "probabilities" if probabilities else "logits"
    network = plain_classifier(kit.backbone, fitted.params, fitted.prototypes, fitted.scale, probabilities)
    program = folded_program(network, rule.size)
    told = metadata(classifier) | {"output": output}
    run: Callable[[Tensor], Tensor]
    if format == "onnx":
        content = onnx_bytes(program, output, told)
        run = partial(run_onnx, content)
    else:
        content, run = torch_bytes(program, told), program.module()
    difference = _largest_difference(classifier, pictures, run, probabilities)
    if not difference <= TOLERANCE:
        raise FewshiftError(
            f"{path} was not written: its {output} differ from the classifier's by {difference:.1e} "
            f"on {len(pictures)} images, more than {TOLERANCE:.0e}; please report this with your kit"
        )
    _write(Path(path), content)
    return Exported(Path(path), len(content), len(pictures), difference)


def metadata(classifier: FewShotClassifier) -> dict[str, Any]:
    """What a program needs to prepare images and to read the output."""
    fitted, rule = classifier.fitted_, classifier._opened.rule
    names = fitted.classes.tolist()
    return {
        "classes": [name if isinstance(name, str | int | float) else str(name) for name in names],
        "preprocessing": {**asdict(rule), "words": preparation(rule)},
        "scale": fitted.scale,  # logits are this times a cosine
        "unknown_below": fitted.familiar.below,  # a largest cosine below this is unlike every class
        "method": classifier._asked_of_fit[0],
        "kit": classifier.kit_name_,
        "written_by": f"fewshift {__version__}",
    }


def preparation(rule: PixelRule) -> str:
    """The pixel rule as a sentence, for reimplementing it in another language."""
    if rule.kind == "protocol":
        resize = f"resize to {rule.size} x {rule.size}, bilinear with aligned corners and no antialias"
        resize += ", rounded to whole levels" if rule.rounded else ""
    else:
        crop = "the whole picture" if rule.crop is None else f"the centre {rule.crop:g} of the shorter side"
        resize = f"take {crop}, resize to {rule.size} x {rule.size}, {rule.filter} with antialias"
    return f"RGB, upright; {resize}; then (level / 255 - mean) / std; channels first"


def _largest_difference(
    classifier: FewShotClassifier, images: Tensor, network: Callable[[Tensor], Tensor], probabilities: bool
) -> float:
    """Between the file's output and the adapted classifier's own; infinite when shapes differ."""
    engine, fitted = classifier.engine_, classifier.fitted_
    wanted = fitted.logits(engine.embed(fitted.params, images.to(engine.backbone.device))).cpu()
    wanted = wanted.softmax(dim=-1) if probabilities else wanted
    with torch.no_grad():
        together = network(images)
        singly = torch.cat([network(image[None]) for image in images])
    if together.shape != wanted.shape or singly.shape != wanted.shape:
        return float("inf")
    return max((found - wanted).abs().max().item() for found in (together, singly))


def _drawn(rule: PixelRule) -> Tensor:  # (6, 3, size, size)
    """A few pictures that need no data: shapes, textures and plants."""
    pictures = [
        picture
        for name in ("shapes", "textures", "plants")
        for picture in drawn_domain(name).source.read([(0, 0), (1, 0)])
    ]
    return prepare(pictures, rule)


def _write(path: Path, content: bytes) -> None:
    try:
        write_whole(path, content)
    except OSError as problem:
        raise FewshiftError(
            f"{path} cannot be written ({problem.strerror or problem}): give another -o"
        ) from problem
