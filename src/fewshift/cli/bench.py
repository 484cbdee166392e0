"""`fewshift bench`: speed and memory as ratios measured in one run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from fewshift.cli.bench_own import JsonFile, finish
from fewshift.cli.console import bars
from fewshift.cli.train_options import RecordsOption, SuiteOption
from fewshift.cli.words import words

bench = typer.Typer(
    no_args_is_help=True, help="Speed and memory, as ratios measured in one run; accuracy on own images."
)


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
    outcome = reading.run(folder, tasks, bars())
    outcome["indexing"] = indexing.run(folder)
    finish(outcome, json_file)


@bench.command()
def adapt(
    sizes: Annotated[str, typer.Option(help="Support sizes with commas.")] = "5,25,100,350,500",
    steps: Annotated[int, typer.Option(help="Steps of adaptation.", min=1)] = 40,
    width: Annotated[int, typer.Option(help="The ResNet-18's width; 64 is the published one.", min=1)] = 64,
    image_size: Annotated[int, typer.Option(help="Pixels a side.", min=8)] = 84,
    engines: Annotated[str, typer.Option(help="Engines to compare with the public-style loop.")] = "auto",
    precision: Annotated[
        str, typer.Option(help="The graph engine's: float32, tf32 or float16, several with commas.")
    ] = "tf32,float16",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, ...")] = "cpu",
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
    from fewshift.cli.evaluate_inputs import choose_device, counts
    from fewshift.nets.precision import multiplies_bfloat16, precision_named

    device = str(choose_device(device))
    chosen = words(engines)
    if chosen == ["auto"]:
        fastest = "graph" if device.startswith("cuda") else "folded bfloat16" if multiplies_bfloat16() else ""
        chosen = ["public", "plain", "folded", *([fastest] if fastest else [])]
    graphs = [f"graph {precision_named(name)}" for name in words(precision)]
    chosen = [name for engine in chosen for name in (graphs if engine == "graph" else [engine])]
    outcome = adaptation.run(
        counts(sizes, "--sizes"),
        steps,
        width,
        image_size,
        device,
        chosen,
        repeats=repeats,
        memory=memory,
        track=bars(),
    )
    typer.echo(adaptation.table(outcome), err=True)
    finish(outcome, json_file)


@bench.command()
def small(
    shots: Annotated[str, typer.Option(help="Support images a class, with commas.")] = "1,5",
    width: Annotated[int, typer.Option(help="The ResNet-18's width; 64 is the published one.", min=1)] = 64,
    image_size: Annotated[int, typer.Option(help="Pixels a side.", min=8)] = 84,
    precision: Annotated[
        str, typer.Option(help="On a GPU: float32, tf32 or float16, several with commas.")
    ] = "tf32,float16",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, ...")] = "cpu",
    tasks: Annotated[
        int | None, typer.Option(help="Tasks at a time. Default: what one batch of a GPU holds.", min=1)
    ] = None,
    repeats: Annotated[int, typer.Option(help="The best of so many counts.", min=1)] = 3,
    json_file: JsonFile = None,
) -> None:
    """Five-way tasks a second, one by one and many together, against the public loop in the same run.

    Example: `fewshift bench small --device cuda --shots 1,5 --json small.json`
    """
    from fewshift.benchmarks import small_tasks
    from fewshift.cli.evaluate_inputs import choose_device, counts
    from fewshift.nets.precision import precision_named

    device = str(choose_device(device))
    precisions = [precision_named(name) for name in words(precision)]
    outcome = small_tasks.run(
        counts(shots, "--shots"),
        width,
        image_size,
        device,
        precisions,
        tasks=tasks,
        repeats=repeats,
        track=bars(),
    )
    typer.echo(small_tasks.table(outcome), err=True)
    finish(outcome, json_file)


@bench.command()
def meta(
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, ...")] = "cpu",
    width: Annotated[int, typer.Option(help="The ResNet-18's width.", min=1)] = 16,
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
    from fewshift.cli.evaluate_inputs import choose_device
    from fewshift.errors import FewshiftError
    from fewshift.nets.precision import precision_named

    device = str(choose_device(device))
    known: dict[str, Literal[1, 2]] = {"1": 1, "2": 2}
    asked = words(orders)
    if not asked or not set(asked) <= set(known):
        raise FewshiftError(f"--orders is {orders!r}: give 1, 2 or 1,2")
    outcome: dict[str, Any] = {}
    if updates:
        outcome |= meta_rate.run(
            device,
            width,
            precision=precision_named(precision),
            updates=updates,
            orders=tuple(known[order] for order in asked),
            track=bars(),
        )
    if memory:
        outcome["memory"] = meta_memory.run(device=device, width=width, support=support, query=query)
    finish(outcome, json_file)


@bench.command()
def gate(
    kit: Annotated[str, typer.Option(help="A kit file, or a bundled kit's name.")],
    records: RecordsOption = None,
    suite: SuiteOption = None,
    domains: Annotated[str | None, typer.Option(help="Names with commas. Default: all.")] = None,
    precision: Annotated[
        str | None,
        typer.Option(help="What to compare with float32. Default: tf32,float16 on a GPU, bfloat16 on a CPU."),
    ] = None,
    methods: Annotated[str, typer.Option(help="Methods that adapt, with commas.")] = "tsa,tsp",
    tasks: Annotated[int, typer.Option(help="Tasks in all, shared by the domains.", min=2)] = 200,
    protocol: Annotated[str, typer.Option(help="varying, five-shot or one-shot.")] = "varying",
    split: Annotated[str, typer.Option(help="Classes to draw tasks from: train, valid or test.")] = "valid",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")] = "auto",
    json_file: JsonFile = None,
) -> None:
    """Accuracy in a faster precision against float32 on the same tasks; fails beyond 0.1 points.

    Example: `fewshift bench gate --kit KIT --records DIR --tasks 200`
    """
    from fewshift.benchmarks import gate as gates
    from fewshift.cli import evaluate_inputs as inputs
    from fewshift.data.episodes import reader
    from fewshift.data.plan import choices, plan_task
    from fewshift.errors import FewshiftError
    from fewshift.evaluation.pixel_rule import pixel_rule
    from fewshift.evaluation.run import with_roles
    from fewshift.nets.bundled import find_kit
    from fewshift.nets.precision import precision_for
    from fewshift.progress import silent

    where = inputs.choose_device(device)
    on_gpu = where.type == "cuda"
    named = words(precision or ("tf32,float16" if on_gpu else "bfloat16"))
    precisions = [precision_for(name, where) for name in named]
    if not on_gpu and set(precisions) != {"bfloat16"}:
        raise FewshiftError(
            f"--precision is {precision}: on {where} bfloat16 is all that differs from float32"
        )
    _, loaded = find_kit(kit, where)
    part = inputs.split_named(split)
    found = inputs.open_domains(records, None, suite, words(domains), part, silent)
    chosen = with_roles(found, loaded.trained_on)
    read = reader(chosen, pixel_rule(loaded), reveal_seen=True)
    among = [choices(domain.spec, part, inputs.protocol_named(protocol)) for domain in chosen]
    plans = (plan_task(among[n % len(among)], 0, n // len(among)) for n in range(tasks))
    episodes = bars()(map(read, plans), label="tasks", total=tasks)
    outcome = {"split": part} | gates.run(loaded, episodes, where, precisions, words(methods))
    finish(outcome, json_file)
    failed = [row for row in outcome["results"] if not row["passes"]]
    for row in failed:
        typer.echo(
            f"fewshift: {row['method']} in {row['precision']} is {row['difference']:+.3f} points from "
            f"float32, more than {gates.ALLOWED}",
            err=True,
        )
    if failed:
        raise typer.Exit(1)
