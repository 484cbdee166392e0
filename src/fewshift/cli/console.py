"""What a person sees: bars on a terminal, none when quiet or piped; results on stdout, the rest on stderr.

Tables are as wide as the terminal, or wide enough to read when there is none. Names may be any text, where a
terminal or a pipe takes less than that.
"""

from __future__ import annotations

import io
import json
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from fewshift.progress import Track, silent

T = TypeVar("T")
WITHOUT_TERMINAL = 120  # columns of a table

out = Console()
err = Console(stderr=True)


class _Rate(ProgressColumn):
    """Items a second, or seconds an item when slow."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        if not speed:
            return Text("")
        return Text(f"{speed:.1f}/s" if speed >= 1 else f"{1 / speed:.1f} s each", style="cyan")


def interrupted(kept: str) -> typer.Exit:
    """Say what was kept and that the same command goes on from it; raise what comes back."""
    command = shlex.join(["fewshift", *sys.argv[1:]])
    typer.echo(f"fewshift: interrupted; {kept}. To go on: {command}", err=True)
    return typer.Exit(130)


def bars(quiet: bool = False) -> Track:
    """A `Track` that draws a bar with rate and time left on stderr; silent when quiet or not a terminal."""
    if quiet or not sys.stderr.isatty():
        return silent

    def track(items: Iterable[T], /, *, label: str, total: int | None = None) -> Iterator[T]:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Rate())
        left = TimeRemainingColumn()
        with Progress(*columns, left, console=err, transient=True, refresh_per_second=4) as progress:
            yield from progress.track(items, total=total, description=label)

    return track


def print_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    *,
    right: Sequence[str] = (),
    fold: Sequence[str] = (),
    lines: bool = False,
    grouped: bool = False,
) -> None:
    """Print a table to stdout. Columns of `right` hold numbers, those of `fold` may take several lines.

    A `grouped` one says its first cell once for all rows that begin so. Brackets in texts are no markup.
    """
    table = Table(pad_edge=False, show_lines=lines)
    for heading in headings:
        if heading in fold:
            table.add_column(heading, overflow="fold")
        else:
            table.add_column(heading, justify="right" if heading in right else "left", no_wrap=True)
    before = None
    for first, *others in rows:
        again = grouped and first == before
        if grouped and not again and before is not None:
            table.add_section()
        cells = ("" if again else first, *others)
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in cells))
        before = first
    console = out if out.is_terminal else Console(width=WITHOUT_TERMINAL)
    console.print(table)


def print_json(value: Any) -> None:
    """Print JSON for programs."""
    typer.echo(json.dumps(value, indent=1, ensure_ascii=False))


def print_any_text(encoding: str | None = None) -> None:
    """Let stdout write what its encoding lacks as \\u0161; `encoding` is for formats that say their own."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding=encoding or sys.stdout.encoding, errors="backslashreplace")


def read_any_names() -> None:
    """Let stdin hold file names in bytes that are no text, as `ls` prints them."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="surrogateescape")


def printable(text: str) -> str:
    """File names may hold bytes that no text has."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
