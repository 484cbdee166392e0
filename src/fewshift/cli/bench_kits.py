"""`fewshift bench kits`: the scores by which the default kit is chosen."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fewshift.cli.bench_own import JsonFile, finish
from fewshift.cli.words import words


def kits(
    records: Annotated[Path, typer.Option(help="A folder of converted domains.")],
    names: Annotated[
        str, typer.Option("--kits", help="Bundled kits' names or kit files, with commas.")
    ] = "narrow,lite0",
    tasks: Annotated[int, typer.Option(min=1, help="Tasks a domain with each of 1, 2 and 5 shots.")] = 1,
    seed: Annotated[int, typer.Option(help="Names the tasks.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, ...")] = "auto",
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
    from fewshift.cli.console import bars

    chosen = words(names)
    outcome = kit_score.run(records, chosen, tasks, device, seed, track=bars())
    typer.echo(kit_score.table(outcome), err=True)
    for kit in chosen if write else ():
        typer.echo(f"wrote the score into {kit_score.write_score(kit, outcome)}", err=True)
    finish(outcome, json_file)
