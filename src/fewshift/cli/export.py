"""`fewshift export`: a fitted classifier as a file for other programs."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from fewshift.cli.options import FittedArgument
from fewshift.cli.outputs import keep_input, make_place


class ExportFormat(str, Enum):
    """What the file is."""

    onnx = "onnx"
    torch = "torch"


def export(
    classifier: FittedArgument,
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write: model.onnx or model.pt2.")],
    format: Annotated[
        ExportFormat | None,
        typer.Option(help="ONNX, or `torch.export`. Not given: torch for a name in .pt2, else onnx."),
    ] = None,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Put out calibrated probabilities, not logits.")
    ] = False,
    kit: Annotated[
        str | None, typer.Option(help="The kit it was fitted with, where it is not found by its name.")
    ] = None,
    check: Annotated[
        list[Path] | None,
        typer.Option(help="Images or a folder to compare the file's output on; drawn pictures otherwise."),
    ] = None,
) -> None:
    """Write a fitted classifier as a plain network that runs without Fewshift.

    Adapters and batch norms are folded into the convolutions. Its input is a batch of any number of prepared
    images; class names and the way to prepare an image are in the file's metadata. The file is compared with
    the classifier before it gets its name.

    Example: `fewshift export birds.fewshift -o birds.onnx --probabilities`

    Example: `fewshift export birds.fewshift -o birds.pt2`
    """
    from fewshift.estimator.exported import export as write
    from fewshift.estimator.inputs import items_of
    from fewshift.estimator.saved import load

    keep_input(out, "--out", classifier, "classifier", "model.onnx")
    keep_input(out, "--out", kit, "kit", "model.onnx")
    make_place(out, "--out", "model.onnx")
    name = format.value if format else ("torch" if out.suffix == ".pt2" else "onnx")
    images = [item for path in check for item in items_of(path)] if check else None
    fitted = load(classifier, kit=kit)
    done = write(fitted, out, format=name, probabilities=probabilities, images=images)  # type: ignore[arg-type]
    typer.echo(
        f"wrote {done.path} ({done.size / 1e6:.1f} MB); largest difference to the classifier "
        f"on {done.images} images: {done.difference:.1e}"
    )
