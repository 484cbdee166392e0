"""`fewshift reproduce`: the commands of a table or figure of the paper, run in order."""

from __future__ import annotations

import shlex
import subprocess
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from fewshift.cli.options import RecordsOption, SuiteOption
from fewshift.cli.train_options import DeviceOption


class ScaleName(str, Enum):
    """How large everything is."""

    quick = "quick"
    small = "small"
    full = "full"
    adapters = "adapters"
    paper = "paper"
    features = "features"


def reproduce(
    table: Annotated[str | None, typer.Argument(help="A table or figure. Default: list them.")] = None,
    records: RecordsOption = None,
    suite: SuiteOption = None,
    out: Annotated[Path, typer.Option(help="The folder for kits, results and tables.")] = Path("reproduced"),
    scale: Annotated[
        ScaleName,
        typer.Option(
            help="paper: as published, GPU days. quick: small networks and tasks. small, full: for suites of "
            "small domains, width 32 or 64. adapters: short runs of many designs at width 32. features: the "
            "last map alone, on features computed once an image."
        ),
    ] = ScaleName.paper,
    kit: Annotated[
        str | None, typer.Option(help="Use this kit's backbone, a file or a name, instead of training one.")
    ] = None,
    device: DeviceOption = "auto",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the commands and run none.")] = False,
) -> None:
    """Make a table or figure of the paper: train, evaluate, report. `--dry-run` shows the commands.

    Stages that are finished are skipped and stopped ones are gone on with, so the same command can be given
    again at any time. Tables in one folder share what they train.

    Example: `fewshift reproduce lambda --suite drawn --scale quick --out runs/tables`

    Example: `fewshift reproduce proof --records RECORDS --scale full --device cuda --out runs/full`
    """
    from fewshift.cli.train_shared import training_domains
    from fewshift.presets.paper_tables import TABLES, table_named
    from fewshift.presets.reproduce import SCALES, Setup, checksums
    from fewshift.progress import silent

    if table is None:
        for name, entry in TABLES.items():
            typer.echo(f"{name:<18}{entry.title}")
        return
    chosen = table_named(table)
    seen = tuple(domain.name for domain in training_domains(records, suite, [], silent))
    source = ("--records", str(records)) if records is not None else ("--suite", str(suite))
    stages = chosen.stages(Setup(source, seen, out, SCALES[scale.value], device, kit))
    typer.echo(f"{chosen.title}: {len(stages)} commands", err=True)
    for sentence in chosen.beware:
        typer.echo(f"beware: {sentence}", err=True)
    for stage in stages:
        command = shlex.join(("fewshift", *stage.words))
        if dry_run:
            typer.echo(command)
        elif stage.makes.exists() and not stage.again:
            typer.echo(f"there is {stage.makes}", err=True)
        else:
            typer.echo(command, err=True)
            stage.makes.parent.mkdir(parents=True, exist_ok=True)
            _run(stage.words)
    if not dry_run:
        sums = checksums(stages[-1].makes.parent)
        typer.echo(f"made {stages[-1].makes}; checksums of its kits: {sums}", err=True)


def _run(words: tuple[str, ...]) -> None:
    """One command in a process of its own; what ends it ends us, with its code."""
    process = subprocess.Popen([sys.executable, "-m", "fewshift", *words])
    while True:
        try:
            code = process.wait()
        except KeyboardInterrupt:  # it got the signal too, and says how to go on
            continue
        break
    if code:
        raise typer.Exit(code)
