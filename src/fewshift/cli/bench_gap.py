"""`fewshift bench gap`: the paper's comparison of GAP's and TSP's time per task."""

from __future__ import annotations

from typing import Annotated

import typer

from fewshift.cli.bench_own import JsonFile, finish
from fewshift.cli.console import bars


def gap(
    size: Annotated[int, typer.Option(help="Support images.", min=5)] = 350,
    width: Annotated[int, typer.Option(help="The ResNet-18's width; 64 is the published one.", min=1)] = 64,
    image_size: Annotated[int, typer.Option(help="Pixels a side.", min=8)] = 84,
    tsp_steps: Annotated[int, typer.Option(help="TSP's steps.", min=1)] = 40,
    gap_steps: Annotated[int, typer.Option(help="GAP's steps.", min=1)] = 10,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, ...")] = "cpu",
    repeats: Annotated[int, typer.Option(help="The best of so many counts.", min=1)] = 3,
    json_file: JsonFile = None,
) -> None:
    """Seconds a task takes by GAP, its eigen and approximate forms, and by TSP: published as 13 to 1.

    Example: `fewshift bench gap --device cuda --json gap.json`
    """
    from fewshift.benchmarks import gap as comparison
    from fewshift.cli.evaluate_inputs import choose_device

    device = str(choose_device(device))
    outcome = comparison.run(
        size,
        width,
        image_size,
        device,
        tsp_steps=tsp_steps,
        gap_steps=gap_steps,
        repeats=repeats,
        track=bars(),
    )
    typer.echo(comparison.table(outcome), err=True)
    finish(outcome, json_file)
