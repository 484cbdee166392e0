"""`fewshift bench`: speed and memory as ratios measured in one run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from fewshift.cli import bench_accuracy
from fewshift.cli.bench_options import ImageSize, JsonFile, OneKit, Repeats, Width, finish
from fewshift.cli.console import bars
from fewshift.cli.options import DeviceOption, MethodOption, PrecisionOption, counts, words

bench = typer.Typer(
    no_args_is_help=True, help="Speed and memory, as ratios measured in one run; accuracy on own images."
)
SupportSizes = Annotated[str, typer.Option(help="Numbers of support images, with commas.")]


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
        from fewshift.benchmarks import indexing
    except ImportError as problem:
        raise MissingExtra(str(problem.name), "dev") from None
    folder = records or data_folder() / "open"
    if not folder.is_dir():
        raise DataError(f"{folder} is not there: give --records, or run fewshift data fetch")
    outcome = reading.run(folder, tasks, bars())
    outcome["indexing"] = indexing.run(folder)
    finish(outcome, json_file)


@bench.command()
def adapt(
    sizes: SupportSizes = "5,25,100,350,500",
    steps: Annotated[int, typer.Option(help="Steps of adaptation.", min=1)] = 40,
    width: Width = 64,
    image_size: ImageSize = 84,
    engines: Annotated[str, typer.Option(help="Engines to compare with the public-style loop.")] = "auto",
    precision: Annotated[
        str, typer.Option(help="The graph engine's: float32, tf32 or float16, several with commas.")
    ] = "tf32,float16",
    device: DeviceOption = "cpu",
    repeats: Annotated[
        int | None,
        typer.Option(
            help="The best of so many counts. Default: 3, or 1 where the public loop takes over ten seconds.",
            min=1,
        ),
    ] = None,
    memory: Annotated[bool, typer.Option("--memory", help="Peak memory too, on a CPU.")] = False,
    json_file: JsonFile = None,
) -> None:
    """Seconds an adaptation takes, against a re-implementation of the public loop in the same run.

    Example: `fewshift bench adapt --sizes 25,100 --steps 40 --json adapt.json`
    """
    from fewshift.benchmarks import adapt as adaptation
    from fewshift.nets.precision import multiplies_bfloat16, precision_named

    where = _device(device)
    chosen = words(engines)
    if chosen == ["auto"]:
        fastest = "graph" if where.startswith("cuda") else "folded bfloat16" if multiplies_bfloat16() else ""
        chosen = ["public", "plain", "folded", *([fastest] if fastest else [])]
    graphs = [f"graph {precision_named(name)}" for name in words(precision)]
    chosen = [name for engine in chosen for name in (graphs if engine == "graph" else [engine])]
    outcome = adaptation.run(
        counts(sizes, "--sizes"),
        steps,
        width,
        image_size,
        where,
        chosen,
        repeats=repeats,
        memory=memory,
        track=bars(),
    )
    finish(outcome, json_file, adaptation.table(outcome))


@bench.command()
def small(
    shots: Annotated[str, typer.Option(help="Support images a class, with commas.")] = "1,5",
    width: Width = 64,
    image_size: ImageSize = 84,
    precision: Annotated[
        str, typer.Option(help="On a GPU: float32, tf32 or float16, several with commas.")
    ] = "tf32,float16",
    device: DeviceOption = "cpu",
    tasks: Annotated[
        int | None, typer.Option(help="Tasks at a time. Default: what one batch of a GPU holds.", min=1)
    ] = None,
    repeats: Repeats = 3,
    json_file: JsonFile = None,
) -> None:
    """Five-way tasks a second, one by one and many together, against the public loop in the same run.

    Example: `fewshift bench small --device cuda --shots 1,5 --json small.json`
    """
    from fewshift.benchmarks import small_tasks
    from fewshift.nets.precision import precision_named

    where = _device(device)
    precisions = [precision_named(name) for name in words(precision)]
    numbers = counts(shots, "--shots")
    outcome = small_tasks.run(
        numbers, width, image_size, where, precisions, tasks=tasks, repeats=repeats, track=bars()
    )
    finish(outcome, json_file, small_tasks.table(outcome))


@bench.command()
def meta(
    device: DeviceOption = "cpu",
    width: Width = 16,
    support: Annotated[int, typer.Option(help="Support images, for the memory.")] = 30,
    query: Annotated[int, typer.Option(help="Query images, for the memory.")] = 20,
    precision: Annotated[str, typer.Option(help="float32, tf32 or float16, on a GPU.")] = "tf32",
    updates: Annotated[int, typer.Option(help="Updates to time; 0 leaves the rate out.", min=0)] = 2,
    orders: Annotated[str, typer.Option(help="Orders to time, with commas.")] = "1,2",
    memory: Annotated[bool, typer.Option(help="Measure memory too, in fresh processes.")] = True,
    json_file: JsonFile = None,
) -> None:
    """Tasks a second of meta-training, and peak memory with five inner steps against one.

    Example: `fewshift bench meta --device cuda --width 64 --updates 12 --json meta.json`
    """
    from fewshift.benchmarks import meta_memory, meta_rate
    from fewshift.errors import FewshiftError
    from fewshift.nets.precision import precision_named

    where = _device(device)
    known: dict[str, Literal[1, 2]] = {"1": 1, "2": 2}
    asked = words(orders)
    if not asked or not set(asked) <= set(known):
        raise FewshiftError(f"--orders is {orders!r}: give 1, 2 or 1,2")
    outcome: dict[str, Any] = {}
    if updates:
        outcome |= meta_rate.run(
            where,
            width,
            precision=precision_named(precision),
            updates=updates,
            orders=tuple(known[order] for order in asked),
            track=bars(),
        )
    if memory:
        outcome["memory"] = meta_memory.run(device=where, width=width, support=support, query=query)
    finish(outcome, json_file)


@bench.command()
def fit(
    sizes: SupportSizes = "5,25,100,500",
    kit: OneKit = None,
    method: MethodOption = "tsp",
    device: DeviceOption = "cpu",
    precision: PrecisionOption = "auto",
    json_file: JsonFile = None,
) -> None:
    """Seconds and memory of a fit on own images, against ncc and the published settings.

    Example: `fewshift bench fit --sizes 5,25 --json fit.json`
    """
    from fewshift.benchmarks import fit_memory
    from fewshift.cli.evaluate_inputs import choose_device
    from fewshift.nets.precision import precision_for

    def tell(row: dict[str, Any]) -> None:  # the large sizes take minutes: none waits for the others
        typer.echo(fit_memory.line(row), err=True)

    where = choose_device(device)
    precision_for(precision, where)  # a wrong name is said before anything runs
    numbers = counts(sizes, "--sizes")
    finish(fit_memory.run(numbers, kit, method, str(where), precision, track=bars(), tell=tell), json_file)


@bench.command()
def gap(
    size: Annotated[int, typer.Option(help="Support images.", min=5)] = 350,
    width: Width = 64,
    image_size: ImageSize = 84,
    tsp_steps: Annotated[int, typer.Option(help="TSP's steps.", min=1)] = 40,
    gap_steps: Annotated[int, typer.Option(help="GAP's steps.", min=1)] = 10,
    device: DeviceOption = "cpu",
    repeats: Repeats = 3,
    json_file: JsonFile = None,
) -> None:
    """Seconds a task takes by GAP, its eigen and approximate forms, and by TSP: published as 13 to 1.

    Example: `fewshift bench gap --device cuda --json gap.json`
    """
    from fewshift.benchmarks import gap as comparison

    steps = {"tsp_steps": tsp_steps, "gap_steps": gap_steps}
    outcome = comparison.run(size, width, image_size, _device(device), **steps, repeats=repeats, track=bars())
    finish(outcome, json_file, comparison.table(outcome))


@bench.command()
def tuning(
    sizes: SupportSizes = "25,100,400",
    width: Width = 64,
    image_size: ImageSize = 84,
    steps: Annotated[int, typer.Option(help="Steps of Adam.", min=1)] = 40,
    device: DeviceOption = "cpu",
    repeats: Repeats = 3,
    json_file: JsonFile = None,
) -> None:
    """Seconds that fine_tune, norm_tune and pmf take as written down, and by graphs in two precisions.

    Example: `fewshift bench tuning --device cuda --json tuning.json`
    """
    from fewshift.benchmarks import tuning as comparison

    numbers, where = counts(sizes, "--sizes"), _device(device)
    outcome = comparison.run(numbers, width, image_size, where, steps=steps, repeats=repeats, track=bars())
    finish(outcome, json_file, comparison.table(outcome))


def _device(name: str) -> str:
    from fewshift.cli.evaluate_inputs import choose_device

    return str(choose_device(name))


bench.command()(bench_accuracy.gate)
bench.command()(bench_accuracy.kits)
bench.command()(bench_accuracy.own_images)
bench.command()(bench_accuracy.own_grid)
bench.command()(bench_accuracy.own_rules)
