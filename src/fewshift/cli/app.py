"""The `fewshift` command: one sub-command a file in this folder."""

from __future__ import annotations

import sys

import click
import typer

from fewshift import __version__
from fewshift.errors import FewshiftError

app = typer.Typer(
    name="fewshift",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    help="Cross-domain few-shot image classification: a frozen backbone, a few labelled images, a classifier.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fewshift {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print it and stop."
    ),
) -> None:
    pass


def main() -> None:
    """Run the command line: 0 done, 1 a check found something, 2 bad input, 130 interrupted."""
    try:
        app(standalone_mode=False)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.ClickException as problem:
        problem.show()
        sys.exit(2)
    except FewshiftError as problem:
        print(f"fewshift: {problem}", file=sys.stderr)
        sys.exit(2)
    except (KeyboardInterrupt, click.Abort):
        print("fewshift: interrupted", file=sys.stderr)
        sys.exit(130)
