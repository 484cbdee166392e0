"""`fewshift train curves`: what runs learned over time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def curves(
    runs: Annotated[list[Path], typer.Argument(help="Folders of training runs (NAME.run), also unfinished.")],
    out: Annotated[
        Path | None, typer.Option(help="A picture to write: curves.png, .svg or .pdf. Default: curves.png.")
    ] = None,
    tensorboard: Annotated[
        Path | None, typer.Option(help="Write TensorBoard's files into this folder instead.")
    ] = None,
) -> None:
    """Draw the learning curves of one run or several, from the logs that runs keep.

    Example: `fewshift train curves runs/dsp.run runs/other.run --out curves.png`
    """
    from fewshift.training.curves import curves_of, draw, to_tensorboard

    found = {
        run.stem if run.stem not in {r.stem for r in runs if r != run} else str(run): run for run in runs
    }
    read = {name: curves_of(run) for name, run in found.items()}
    if tensorboard is not None:
        to_tensorboard(read, tensorboard)
        typer.echo(f"wrote {tensorboard}: tensorboard --logdir {tensorboard}", err=True)
    if out is not None or tensorboard is None:
        picture = out or Path("curves.png")
        draw(read, picture)
        typer.echo(f"wrote {picture}", err=True)
