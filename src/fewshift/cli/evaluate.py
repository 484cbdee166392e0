"""`fewshift evaluate`: methods x domains x tasks, one JSON line a score."""

from __future__ import annotations

import shlex
import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fewshift.cli.console import bars


def evaluate(
    kit: Annotated[str, typer.Option(help="A kit file, or a bundled kit's name.")],
    out: Annotated[Path, typer.Option(help="The results file; one of the same run is gone on with.")],
    records: Annotated[Path | None, typer.Option(help="A folder of converted domains.")] = None,
    folder: Annotated[Path | None, typer.Option(help="A folder with a folder a class: one domain.")] = None,
    suite: Annotated[str | None, typer.Option(help="A suite by name; see `fewshift data list`.")] = None,
    methods: Annotated[
        str, typer.Option(help="Names with commas, or all the kit has; your own as package.module:build.")
    ] = "ncc,pa,tsa,gd,tsp",
    domains: Annotated[
        str | None, typer.Option(help="Names with commas. Default: all with classes in the split.")
    ] = None,
    split: Annotated[str, typer.Option(help="train, valid or test.")] = "test",
    tasks: Annotated[int, typer.Option(min=1, help="Tasks a domain.")] = 600,
    protocol: Annotated[str, typer.Option(help="varying, five-shot or one-shot.")] = "varying",
    seed: Annotated[int, typer.Option(help="Names the tasks: the same seed, the same tasks.")] = 0,
    oracle: Annotated[
        bool, typer.Option(help="May rates ask whether the domain was trained on, as published?")
    ] = True,
    engine: Annotated[
        str, typer.Option(help="auto, plain, folded or graph: the same numbers, other speed.")
    ] = "auto",
    precision: Annotated[
        str, typer.Option(help="Of the graph engine on a GPU: float32, tf32 or float16.")
    ] = "tf32",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 or mps.")] = "auto",
    shard: Annotated[str, typer.Option(help="This process's part as i/n; each with its own --out.")] = "1/1",
    workers: Annotated[int, typer.Option(min=0, help="Threads that read the next tasks meanwhile.")] = 2,
    cache: Annotated[
        bool, typer.Option("--cache", help="Read large pictures from rounded caches too; results say so.")
    ] = False,
    features: Annotated[
        bool,
        typer.Option(
            "--features",
            help="Compute features once an image, if only the last map moves; not in the seconds.",
        ),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No bar, no table.")] = False,
) -> None:
    """Score methods on identical tasks, one JSON line a task and method.

    Stop it whenever you like, even with kill -9: the same command goes on where it was. Methods, domains and
    tasks can be added to the same file later.

    Example: `fewshift evaluate --records DIR --kit KIT --methods ncc,tsa,tsp --tasks 600 --out results.jsonl`
    """
    from fewshift.cli import evaluate_inputs as inputs
    from fewshift.evaluation.fingerprint import kit_fingerprint
    from fewshift.evaluation.pixel_rule import pixel_rule
    from fewshift.evaluation.run import Job, parse_shard, run, with_roles
    from fewshift.nets.bundled import find_kit
    from fewshift.nets.choice import choose_engine
    from fewshift.nets.feature_kit import on_features
    from fewshift.nets.together import Together
    from fewshift.training.features import FeatureReader

    part, chosen_split = parse_shard(shard), inputs.split_named(split)
    chosen_protocol = inputs.protocol_named(protocol)
    inputs.named_methods(methods)  # a wrong name is said before anything is read
    where = inputs.choose_device(device)
    kit_name, loaded = find_kit(kit, where)
    used = on_features(loaded) if features else loaded
    chosen_engine = Together(choose_engine(used.backbone, engine, precision))
    built = inputs.build_methods(methods, used, chosen_engine, oracle, partial(typer.echo, err=True))
    track = bars(quiet)
    found = inputs.open_domains(records, folder, suite, inputs.words(domains), chosen_split, track)
    found, rule = inputs.with_caches(found, pixel_rule(loaded), cache)
    named = with_roles(found, loaded.domains)
    by_name = {domain.name: domain for domain in named}
    job = Job(
        domains=named,
        read=FeatureReader(by_name, rule, loaded.backbone, oracle, track) if features else None,
        split=chosen_split,
        protocol=chosen_protocol,
        seed=seed,
        tasks=tasks,
        rule=rule,
        reveal_seen=oracle,
        shard=part,
        workers=workers,
    )
    try:
        tally = run(
            built,
            job,
            out,
            kit=kit_name,
            fingerprint=kit_fingerprint(loaded),
            engine=f"{chosen_engine.name} on features" if features else chosen_engine.name,
            device=where,
            track=track,
            together=chosen_engine if chosen_engine.name == "graph" else None,
        )
    except KeyboardInterrupt:
        command = shlex.join(["fewshift", *sys.argv[1:]])
        typer.echo(f"fewshift: interrupted; all scores so far are in {out}. To go on: {command}", err=True)
        raise typer.Exit(130) from None
    typer.echo(f"wrote {tally.written} scores to {out}, {tally.before} were there", err=True)
    if not quiet:
        _show(out)


def _show(out: Path) -> None:
    """The accuracy table, and how to get the rest."""
    from fewshift.evaluation.report import make_report
    from fewshift.evaluation.scores import read_scores
    from fewshift.evaluation.tables import markdown

    for section in make_report(read_scores([out])).sections:
        typer.echo(markdown(section.tables[0]))
    typer.echo(f"more: fewshift report {shlex.quote(str(out))} --format html --out report.html", err=True)
