"""`fewshift bench`: speed and memory as ratios measured in one run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

bench = typer.Typer(no_args_is_help=True, help="Speed and memory, as ratios measured in one run.")

JsonFile = Annotated[Path | None, typer.Option("--json", help="Write the results to this file, too.")]


@bench.command()
def data(
    records: Annotated[
        Path | None, typer.Option(help="A folder of converted domains. Default: the open suite.")
    ] = None,
    tasks: Annotated[int, typer.Option(help="Tasks to read.", min=1)] = 64,
    json_file: JsonFile = None,
) -> None:
    """Tasks a second from the cache and from records, against streaming with PyPI tfrecord; indexing.

    Example: `fewshift bench data --records DIR --tasks 64 --json data.json`
    """
    from fewshift.data.suites import data_folder
    from fewshift.errors import DataError, MissingExtra

    try:
        from fewshift.benchmarks import data as reading
        from fewshift.benchmarks import records as indexing
    except ImportError as problem:
        raise MissingExtra(str(problem.name), "dev") from None
    folder = records or data_folder() / "open"
    if not folder.is_dir():
        raise DataError(f"{folder} is not there: give --records, or run fewshift data fetch")
    outcome = reading.run(folder, tasks)
    outcome["indexing"] = indexing.run(folder)
    _finish(outcome, json_file)


@bench.command()
def adapt(
    sizes: Annotated[str, typer.Option(help="Support sizes with commas.")] = "5,25,100,350,500",
    steps: Annotated[int, typer.Option(help="Steps of adaptation.", min=1)] = 40,
    width: Annotated[int, typer.Option(help="The ResNet-18's width; 64 is the published one.")] = 64,
    image_size: Annotated[int, typer.Option(help="Pixels a side.")] = 84,
    engines: Annotated[str, typer.Option(help="Engines to compare with the public-style loop.")] = "auto",
    device: Annotated[str, typer.Option(help="cpu, cuda, ...")] = "cpu",
    repeats: Annotated[int, typer.Option(help="The best of so many counts.", min=1)] = 3,
    json_file: JsonFile = None,
) -> None:
    """Seconds an adaptation takes, against a re-implementation of the public loop in the same run.

    Example: `fewshift bench adapt --sizes 25,100 --steps 40 --json adapt.json`
    """
    from fewshift.benchmarks import adapt as adaptation
    from fewshift.cli.evaluate_inputs import words

    chosen = words(engines)
    if chosen == ["auto"]:
        chosen = ["plain", "folded", *(["graph"] if device.startswith("cuda") else [])]
    outcome = adaptation.run(
        [int(size) for size in words(sizes)], steps, width, image_size, device, chosen, repeats=repeats
    )
    typer.echo(adaptation.table(outcome), err=True)
    _finish(outcome, json_file)


@bench.command()
def meta(
    device: Annotated[str, typer.Option(help="cpu, cuda, ...")] = "cpu",
    width: Annotated[int, typer.Option(help="The ResNet-18's width.")] = 16,
    support: Annotated[int, typer.Option(help="Support images.")] = 30,
    query: Annotated[int, typer.Option(help="Query images.")] = 20,
    json_file: JsonFile = None,
) -> None:
    """Peak memory of exact meta-gradients with five inner steps against one, each in a fresh process.

    Example: `fewshift bench meta --json meta.json`
    """
    from fewshift.benchmarks import meta_memory

    _finish(meta_memory.run(device=device, width=width, support=support, query=query), json_file)


@bench.command()
def gap(
    size: Annotated[int, typer.Option(help="Support images.", min=5)] = 350,
    width: Annotated[int, typer.Option(help="The ResNet-18's width; 64 is the published one.")] = 64,
    image_size: Annotated[int, typer.Option(help="Pixels a side.")] = 84,
    tsp_steps: Annotated[int, typer.Option(help="TSP's steps.", min=1)] = 40,
    gap_steps: Annotated[int, typer.Option(help="GAP's steps.", min=1)] = 10,
    device: Annotated[str, typer.Option(help="cpu, cuda, ...")] = "cpu",
    repeats: Annotated[int, typer.Option(help="The best of so many counts.", min=1)] = 3,
    json_file: JsonFile = None,
) -> None:
    """Seconds a task takes by GAP, its eigen and approximate forms, and by TSP: published as 13 to 1.

    Example: `fewshift bench gap --device cuda --json gap.json`
    """
    from fewshift.benchmarks import gap as comparison

    outcome = comparison.run(
        size, width, image_size, device, tsp_steps=tsp_steps, gap_steps=gap_steps, repeats=repeats
    )
    typer.echo(comparison.table(outcome), err=True)
    _finish(outcome, json_file)


def _finish(outcome: dict[str, Any], json_file: Path | None) -> None:
    text = json.dumps(outcome, indent=1)
    if json_file is not None:
        json_file.write_text(text + "\n", encoding="utf-8")
    typer.echo(text)
