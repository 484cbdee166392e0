"""`fewshift data convert`: raw images into the records layout."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fewshift.cli.options import QuietOption

if TYPE_CHECKING:
    from fewshift.data.class_split import ClassSplit


def convert(
    source: Annotated[
        Path, typer.Argument(help="A folder a class, or MNIST or CIFAR test files as published.")
    ],
    target: Annotated[Path, typer.Argument(help="The new domain's folder; its name becomes the domain's.")],
    split: Annotated[
        str | None,
        typer.Option(
            help="Shares of classes as 0.7,0.15,0.15 (train, valid, test; the default), `test` for all, or a "
            'JSON file {"train": [names], "valid": [names], "test": [names]}.'
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Which classes the shares get.")] = 0,
    licence: Annotated[str, typer.Option(help="The terms of these images, kept beside them.")] = "not stated",
    attribution: Annotated[str, typer.Option(help="Who made the images, kept beside them.")] = "",
    quiet: QuietOption = False,
) -> None:
    """Turn images into records: one file a class and dataset_spec.json, as Meta-Dataset has them.

    JPEGs are kept byte for byte, everything else becomes JPEG; MNIST and CIFAR get the protocol's form. The
    same command again goes on where an interrupted one stopped, and takes up images that have changed.

    Example: `fewshift data convert photos/birds records/birds --split 0.7,0.15,0.15 --seed 1`
    """
    from fewshift.cli.console import bars
    from fewshift.data.convert import convert as convert_images
    from fewshift.data.convert_published import recognise
    from fewshift.data.domain import Provenance
    from fewshift.errors import FewshiftError
    from fewshift.types import SPLITS

    source, target = source.expanduser(), target.expanduser()
    if split is not None and (published := recognise(source)):
        raise FewshiftError(f"{source}: this is {published}, which is for testing only: leave --split out")
    provenance = Provenance(f"converted from {source.resolve().name}", licence, attribution)
    spec = convert_images(source, target, _class_split(split, seed), provenance, bars(quiet))
    counts = "/".join(str(len(spec.splits[s])) for s in SPLITS)
    images = sum(spec.images_per_class)
    typer.echo(f"{spec.name}: {counts} classes (train/valid/test), {images:,} images in {target}")


def _class_split(text: str | None, seed: int) -> ClassSplit:
    from fewshift.data.class_split import ALL_TEST, DrawnSplit, read_split
    from fewshift.errors import FewshiftError

    if text is None:
        return DrawnSplit(seed=seed)
    if text == "test":
        return ALL_TEST
    try:
        shares = [float(part) for part in text.replace("/", ",").split(",")]
    except ValueError:
        return read_split(Path(text).expanduser())
    if len(shares) != 3:
        raise FewshiftError(
            f"--split is {text!r}: give three shares such as 0.7,0.15,0.15, `test`, or a file"
        )
    train, valid, test = shares
    return DrawnSplit(train, valid, test, seed)
