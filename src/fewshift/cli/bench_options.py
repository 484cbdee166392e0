"""What the benchmarks share: options, and how a result ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from fewshift.cli.outputs import keep_others


def _keep_others(path: Path | None) -> Path | None:
    if path is not None:
        keep_others(path, "--json", b'{\n "', "the results of a benchmark", "results.json")
    return path


JsonFile = Annotated[
    Path | None, typer.Option("--json", help="Write the results to this file, too.", callback=_keep_others)
]
RecordsFolder = Annotated[Path, typer.Option(help="A folder of converted domains.")]
OneKit = Annotated[str | None, typer.Option(help="A kit file or a bundled kit's name.")]
Width = Annotated[int, typer.Option(help="The ResNet-18's width; 64 is the published one.", min=1)]
ImageSize = Annotated[int, typer.Option(help="Pixels a side.", min=8)]
Repeats = Annotated[int, typer.Option(help="The best of so many counts.", min=1)]


def finish(outcome: dict[str, Any], json_file: Path | None, table: str | None = None) -> None:
    """The results: for people on stderr, as JSON on stdout and perhaps in a file."""
    if table is not None:
        typer.echo(table, err=True)
    text = json.dumps(outcome, indent=1)
    typer.echo(text)
    if json_file is not None:  # after the terminal has them: a bad name must not cost the measurement
        json_file.write_text(text + "\n", encoding="utf-8", newline="\n")
