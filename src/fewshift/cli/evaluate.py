"""`fewshift evaluate`: methods x domains x tasks, one JSON line a score; of a folder, a learning curve."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fewshift.cli.console import bars, interrupted
from fewshift.cli.curve import run_curve
from fewshift.cli.options import (
    DeviceOption,
    ProtocolOption,
    RecordsOption,
    SuiteOption,
    TaskSeedOption,
    counts,
    words,
)
from fewshift.errors import FewshiftError

DEFAULT_METHODS = "ncc,pa,tsa,gd,tsp"
DEFAULT_TASKS = 600
CURVE_ONLY = ("curve", "shots", "way", "html")
TABLES_ONLY = ("domains", "split", "protocol", "oracle", "shard", "workers", "cache", "features")


def evaluate(
    context: typer.Context,
    kit: Annotated[
        str | None,
        typer.Option(help="A kit file, or a bundled kit's name. A curve's default: the best on validation."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The results file; one of the same run is gone on with.")
    ] = None,
    records: RecordsOption = None,
    folder: Annotated[
        Path | None,
        typer.Option(help="A folder with a folder a class: one domain, or without --out a learning curve."),
    ] = None,
    suite: SuiteOption = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help="Names with commas, or all the kit has; your own as package.module:build (not in a curve). "
            f"Default: {DEFAULT_METHODS}; of a curve tsp,ncc,linear_probe."
        ),
    ] = None,
    domains: Annotated[
        str | None, typer.Option(help="Names with commas. Default: all with classes in the split.")
    ] = None,
    split: Annotated[str, typer.Option(help="train, valid or test.")] = "test",
    tasks: Annotated[
        int | None, typer.Option(min=1, help="Tasks a domain. Default: 600; of a curve 10 a number of shots.")
    ] = None,
    protocol: ProtocolOption = "varying",
    seed: TaskSeedOption = 0,
    oracle: Annotated[
        bool, typer.Option(help="May rates ask whether the domain was trained on, as published?")
    ] = True,
    engine: Annotated[
        str,
        typer.Option(help="auto, plain, folded, graph or last-map: other speed, in float32 equal numbers."),
    ] = "auto",
    precision: Annotated[
        str,
        typer.Option(
            help="float32; tf32 or float16 on a GPU; bfloat16 on a CPU. auto: 16 bits where the device has "
            "instructions for them, which costs no accuracy unless steps overshoot (fewshift bench gate); "
            "for a curve what fit takes, on a GPU tf32."
        ),
    ] = "auto",
    device: DeviceOption = "auto",
    shard: Annotated[str, typer.Option(help="This process's part as i/n; each with its own --out.")] = "1/1",
    workers: Annotated[int, typer.Option(min=0, help="Workers that read the next tasks meanwhile.")] = 2,
    cache: Annotated[
        bool, typer.Option("--cache", help="Read large pictures from rounded caches too; results say so.")
    ] = False,
    features: Annotated[
        bool,
        typer.Option(
            "--features",
            help="Compute features once an image, where nothing below the last map moves: a last-map kit, or "
            "methods such as ncc and pa; not in the seconds.",
        ),
    ] = False,
    curve: Annotated[
        bool, typer.Option("--curve", help="A learning curve of the folder, also with --out.")
    ] = False,
    shots: Annotated[
        str | None,
        typer.Option(
            help="Of a curve: images a class, with commas. Default: of 1,2,5,10 what classes allow."
        ),
    ] = None,
    way: Annotated[
        int | None, typer.Option(help="Of a curve: classes a task. Default: all, 20 at most.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Of a curve: the page to write. Default: FOLDER-curve.html.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No bar, no table.")] = False,
) -> None:
    """Score methods on identical tasks, one JSON line a task and method.

    On your own images, `fewshift evaluate --folder DIR` draws a learning curve: how good tsp, nearest
    centroid and a linear probe are after 1, 2, 5 and 10 images a class, with intervals, mix-ups, calibration,
    and a page with pictures of the mistakes. With `--out` alone a folder is one domain of a research table
    instead; add `--curve` to keep a curve's lines.

    Stop it whenever you like, even with kill -9: the same command goes on where it was. Methods, domains and
    tasks can be added to the same file later.

    Example: `fewshift evaluate --folder birds/ --html birds.html`, or
    `fewshift evaluate --records DIR --kit KIT --methods ncc,tsa,tsp --tasks 600 --out results.jsonl`
    """
    sources = {name: context.get_parameter_source(name) for name in context.params}
    asked = {name for name, source in sources.items() if source and source.name == "COMMANDLINE"}
    if folder is not None and records is None and suite is None and (out is None or asked & {*CURVE_ONLY}):
        _refuse(asked & {*TABLES_ONLY}, "has no meaning for a learning curve: leave it out")
        run_curve(
            folder,
            kit=kit,
            methods=None if methods is None else words(methods),
            shots=None if shots is None else counts(shots, "--shots"),
            way=way,
            tasks=tasks,
            seed=seed,
            out=out,
            html=html,
            device=device,
            engine=engine,
            precision=precision,
            quiet=quiet,
        )
        return
    _refuse(asked & {*CURVE_ONLY}, "is for a learning curve: give it with --folder alone")
    if kit is None or out is None:
        lacking = "--kit KIT" if kit is None else "--out results.jsonl"
        raise FewshiftError(f"{lacking} is missing: say which kit to build methods from and where scores go")
    methods, tasks = methods or DEFAULT_METHODS, tasks or DEFAULT_TASKS
    from fewshift.cli import evaluate_inputs as inputs
    from fewshift.evaluation.fingerprint import kit_fingerprint
    from fewshift.evaluation.pixel_rule import pixel_rule
    from fewshift.evaluation.run import Job, parse_shard, run, with_roles
    from fewshift.nets.bundled import find_kit
    from fewshift.nets.choice import check_precision, choose_engine, named_engine
    from fewshift.nets.feature_kit import on_features
    from fewshift.nets.precision import precision_for
    from fewshift.nets.together import Together
    from fewshift.training.features import FeatureReader

    part, chosen_split = parse_shard(shard), inputs.split_named(split)
    chosen_protocol = inputs.protocol_named(protocol)
    inputs.named_methods(methods)  # a wrong name is said before anything is read
    where = inputs.choose_device(device)
    kit_name, loaded = find_kit(kit, where)
    whole = inputs.for_features(loaded, methods, oracle) if features else loaded
    used = on_features(whole) if features else whole
    runner = choose_engine(used.backbone, engine, precision_for(precision, where))
    check_precision(precision, runner)
    chosen_engine = Together(runner)
    built = inputs.build_methods(methods, used, chosen_engine, oracle, partial(typer.echo, err=True))
    images = " on features" if features else ""
    track = bars(quiet)
    found = inputs.open_domains(
        records, folder, suite, words(domains), chosen_split, track, "--records, --folder and --suite"
    )
    found, rule = inputs.with_caches(found, pixel_rule(loaded), cache)
    named = with_roles(found, loaded.trained_on)
    by_name = {domain.name: domain for domain in named}
    job = Job(
        domains=named,
        read=FeatureReader(by_name, rule, whole.backbone, oracle, track) if features else None,
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
            engines={"plain": f"plain{images}", runner.name: f"{named_engine(runner)}{images}"},
            device=where,
            track=track,
            say=lambda sentence: typer.echo(f"fewshift: {sentence}", err=True),
            together=chosen_engine if chosen_engine.name == "graph" else None,
        )
    except KeyboardInterrupt:
        raise interrupted(f"all scores so far are in {out}") from None
    typer.echo(f"wrote {tally.written} scores to {out}, {tally.before} were there", err=True)
    if not quiet and (tally.written or tally.before):  # a shard may have no task at all
        _show(out)


def _refuse(names: set[str], why: str) -> None:
    if names:
        raise FewshiftError(f"--{min(names)} {why}")


def _show(out: Path) -> None:
    """The accuracy table, and how to get the rest."""
    from fewshift.evaluation.report import make_report
    from fewshift.evaluation.scores import read_scores
    from fewshift.evaluation.tables import markdown

    for section in make_report(read_scores([out])).sections:
        typer.echo(markdown(section.tables[0]))
    typer.echo(f"more: fewshift report {shlex.quote(str(out))} --format html --out report.html", err=True)
