"""`fewshift report`: tables and a page from result lines."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from fewshift.cli.console import print_any_text
from fewshift.cli.options import ToFileOption, words


class Format(str, Enum):
    """How a report is written."""

    markdown = "markdown"
    csv = "csv"
    latex = "latex"
    html = "html"


def report(
    results: Annotated[
        list[Path], typer.Argument(help="Result files of `fewshift evaluate`; shards together.")
    ],
    format: Annotated[Format, typer.Option(help="What to write.")] = Format.markdown,
    out: ToFileOption = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            help="Methods to take paired differences to, with commas; of one kit: 'tsa @KIT'. Default: "
            "tsa,gd if there, else the first method."
        ),
    ] = None,
    methods: Annotated[
        str | None, typer.Option(help="Show these and the baselines only, with commas. Default: all.")
    ] = None,
    tasks: Annotated[
        int | None,
        typer.Option(min=1, help="The first so many tasks of each domain only: the same ones for all."),
    ] = None,
    published: Annotated[
        bool, typer.Option("--published", help="Add published numbers, in tables of their own.")
    ] = False,
    summary: Annotated[
        bool, typer.Option("--summary", help="One row a method, for many methods: averages only.")
    ] = False,
    title: Annotated[str, typer.Option(help="The title of the HTML page.")] = "Few-shot results",
) -> None:
    """Print means with intervals, averages, ranks and paired differences from result lines.

    Nothing is computed anew: the report is made of the lines alone. Files of several shards, kits or
    protocols can be given together; numbers of different tasks never share a table.

    Example: `fewshift report results.jsonl --format html --out report.html`
    """
    from fewshift.cli.outputs import keep_input, write_text
    from fewshift.evaluation.html import page
    from fewshift.evaluation.report import make_report
    from fewshift.evaluation.scores import read_scores

    for path in results:
        keep_input(out, "--out", path, "results file", "report.md")
    made = make_report(
        read_scores(results),
        words(baseline) or None,
        with_published=published,
        summary=summary,
        methods=words(methods) or None,
        tasks=tasks,
    )
    if format is Format.html:
        text = page(made, title)
    else:
        text = {Format.markdown: made.markdown, Format.csv: made.csv, Format.latex: made.latex}[format]()
    if format in (Format.csv, Format.latex):  # which have no place for them
        for section in made.sections:
            for warning in section.warnings:
                typer.echo(f"{section.title}: {warning}", err=True)
    if out is None:
        print_any_text(None if format is Format.markdown else "utf-8")
        typer.echo(text, nl=False)
        return
    write_text(out, text, "--out")
    typer.echo(f"wrote {out}", err=True)
