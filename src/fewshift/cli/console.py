"""What a person sees: bars on a terminal, none when quiet or piped; results on stdout, the rest on stderr."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

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
from rich.text import Text

from fewshift.progress import Track, silent

T = TypeVar("T")

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
