"""Benchmarks of accuracy: of a precision, of a kit, and of what a fit on a user's own images is worth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from fewshift.cli.bench_options import JsonFile, OneKit, RecordsFolder, finish
from fewshift.cli.console import bars
from fewshift.cli.options import (
    DeviceOption,
    NamesOption,
    ProtocolOption,
    RecordsOption,
    SuiteOption,
    TaskSeedOption,
    counts,
    words,
)
from fewshift.cli.outputs import keep_others


def gate(
    kit: Annotated[str, typer.Option(help="A kit file, or a bundled kit's name.")],
    records: RecordsOption = None,
    suite: SuiteOption = None,
    domains: NamesOption = None,
    precision: Annotated[
        str | None,
        typer.Option(help="What to compare with float32. Default: tf32,float16 on a GPU, bfloat16 on a CPU."),
    ] = None,
    methods: Annotated[str, typer.Option(help="Methods that adapt, with commas.")] = "tsa,tsp",
    tasks: Annotated[int, typer.Option(help="Tasks in all, shared by the domains.", min=2)] = 200,
    protocol: ProtocolOption = "varying",
    split: Annotated[str, typer.Option(help="Classes to draw tasks from: train, valid or test.")] = "valid",
    device: DeviceOption = "auto",
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


def kits(
    records: RecordsFolder,
    names: Annotated[
        str, typer.Option("--kits", help="Bundled kits' names or kit files, with commas.")
    ] = "narrow,lite0",
    tasks: Annotated[int, typer.Option(min=1, help="Tasks a domain with each of 1, 2 and 5 shots.")] = 1,
    seed: TaskSeedOption = 0,
    device: DeviceOption = "auto",
    write: Annotated[bool, typer.Option("--write", help="Put score and scale into the kit's file.")] = False,
    json_file: JsonFile = None,
) -> None:
    """Accuracy of a plain fit with each kit on the same small validation tasks: the best is the default.

    VALID classes of seen domains and the valid_unseen domains, five classes a task; a kit's score is the mean
    of the two kinds, its scale the temperature at which the queries are least surprising. Test classes and
    unseen domains are not looked at.

    Example: `fewshift bench kits --records DIR --kits narrow,lite0`
    """
    from fewshift.benchmarks import kit_score

    chosen = words(names)
    outcome = kit_score.run(records, chosen, tasks, device, seed, track=bars())
    typer.echo(kit_score.table(outcome), err=True)
    for kit in chosen if write else ():
        typer.echo(f"wrote the score into {kit_score.write_score(kit, outcome)}", err=True)
    finish(outcome, json_file)


def own_images(
    records: RecordsFolder,
    kit: OneKit = None,
    method: Annotated[str, typer.Option(help="tsp, tsa, gd or pa.")] = "tsp",
    tasks: Annotated[int, typer.Option(min=1, help="Tasks a domain and number of shots.")] = 10,
    shots: Annotated[str, typer.Option(help="Images a class, with commas.")] = "1,2,5,10",
    domains: NamesOption = None,
    split: Annotated[str, typer.Option(help="valid or test: classes and domains of each.")] = "test",
    device: DeviceOption = "auto",
    seconds: Annotated[float, typer.Option(help="After these no more fits are begun.")] = float("inf"),
    json_file: JsonFile = None,
) -> None:
    """Accuracy of a fit against ncc on small tasks of five classes, by domain and shots, with intervals.

    `--split valid`: VALID classes of seen domains and the valid_unseen domains; `test`: TEST classes and
    the unseen domains.

    Example: `fewshift bench own-images --records DIR --tasks 10 --json own.json`
    """
    from fewshift.benchmarks import own_images as comparison
    from fewshift.cli.evaluate_inputs import split_named

    outcome = comparison.run(
        records,
        kit,
        method,
        tasks,
        counts(shots, "--shots"),
        device,
        split_named(split),
        domains=words(domains),
        track=bars(),
        seconds=seconds,
    )
    finish(outcome, json_file, comparison.table(outcome))


def own_grid(
    records: RecordsFolder,
    out: Annotated[Path, typer.Option("--out", "-o", help="A file of arrays (.npz).")],
    candidates: Annotated[str, typer.Option(help="Such as 'certainty P 0.25 0.05; usual I 0.5 0.05'.")],
    shot: Annotated[int, typer.Option(min=1, help="Images a class.")] = 1,
    kit: OneKit = None,
    seconds: Annotated[float, typer.Option(help="No round is begun that would end later.")] = 60.0,
    each: Annotated[int, typer.Option(min=1, help="Tasks of a domain in a round.")] = 1,
    rounds: Annotated[int, typer.Option(min=1, help="At most so many rounds.")] = 1000,
    domains: NamesOption = None,
    device: DeviceOption = "auto",
) -> None:
    """Starts and rates on small validation tasks at every stop, on queries and on held-out support images.

    Example: `fewshift bench own-grid --records DIR --shot 5 --candidates "own P 0.25 0.05" -o grid.npz`
    """
    from fewshift.benchmarks import own_grid as grid
    from fewshift.benchmarks.own_candidates import candidate

    keep_others(out, "--out", b"PK", "a file of arrays", "grid.npz")
    wanted = [candidate(text) for text in candidates.split(";")]
    names = words(domains)
    found = grid.run(
        records, kit, wanted, shot, seconds, device, names=names, each=each, rounds=rounds, track=bars()
    )
    grid.write(found, out)
    typer.echo(json.dumps(grid.summary(found), indent=1))


def own_rules(
    grids: Annotated[list[Path], typer.Argument(help="Files of `own-grid`.")],
    candidates: Annotated[str, typer.Option(help="Those to choose among, the usual one first.")],
) -> None:
    """What rules that choose by held-out images would have been worth, against always taking one candidate.

    Example: `fewshift bench own-rules grid-5.npz --candidates "certainty P 1 0.05; certainty P 0.5 0.05"`
    """
    from fewshift.benchmarks import own_rules as comparison

    names = [text.strip() for text in candidates.split(";")]
    tasks = [task for grid in grids for task in comparison.read(grid, names)]
    typer.echo(f"{len(tasks)} tasks; gain over ncc in points, each domain alike")
    for name, row in comparison.compare(tasks, comparison.rules(names)).items():
        worst, frozen = f"worst domain {row['worst']:+.2f}", f"frozen {row['frozen']:.0%}"
        typer.echo(f"{name:<36} {row['gain']:+.2f}   {worst}   {frozen}")
    agreed = comparison.agreement(tasks)
    typer.echo(f"correlation of held-out and true gain of {names[0]}: {agreed:+.2f}")
