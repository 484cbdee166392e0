"""`fewshift bench tuning`: what tuning the network itself costs, plainly and by graphs."""

from __future__ import annotations

from typing import Annotated

import typer

from fewshift.cli.bench_own import JsonFile, finish
from fewshift.cli.console import bars


def tuning(
    sizes: Annotated[str, typer.Option(help="Support images, with commas.")] = "25,100,400",
    width: Annotated[int, typer.Option(help="The ResNet-18's width; 64 is the published one.", min=1)] = 64,
    image_size: Annotated[int, typer.Option(help="Pixels a side.", min=8)] = 84,
    steps: Annotated[int, typer.Option(help="Steps of Adam.", min=1)] = 40,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, ...")] = "cpu",
    repeats: Annotated[int, typer.Option(help="The best of so many counts.", min=1)] = 3,
    json_file: JsonFile = None,
) -> None:
    """Seconds that fine_tune, norm_tune and pmf take as written down, and by graphs in two precisions.

    Example: `fewshift bench tuning --device cuda --json tuning.json`
    """
    from fewshift.benchmarks import tuning as comparison
    from fewshift.cli.evaluate_inputs import choose_device, counts

    device = str(choose_device(device))
    outcome = comparison.run(
        counts(sizes, "--sizes"),
        width,
        image_size,
        device,
        steps=steps,
        repeats=repeats,
        track=bars(),
    )
    typer.echo(comparison.table(outcome), err=True)
    finish(outcome, json_file)
