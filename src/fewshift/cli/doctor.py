"""`fewshift doctor`: what this machine and these data can do, and the command that mends what is missing."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fewshift.cli.console import print_any_text, print_json, print_table
from fewshift.cli.options import JsonOption

if TYPE_CHECKING:
    from fewshift.cli.doctor_checks import Check


def doctor(
    folder: Annotated[
        Path | None,
        typer.Argument(help="Say also what this folder holds: records or a folder of images a class."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say what works here and what is missing: machine, torch, GPU, extras, npm, data.

    Exit code 1 when something is broken; what is merely not installed or not fetched is no fault.

    Example: `fewshift doctor`, `fewshift doctor ~/records`
    """
    from fewshift.cli.doctor_checks import check_data, check_extras, check_machine, check_torch
    from fewshift.cli.doctor_folder import check_folder

    print_any_text("utf-8" if as_json else None)
    checks = [*check_machine(), *check_torch(), *check_extras(), *check_data()]
    if folder is not None:
        checks += check_folder(folder)
    if as_json:
        print_json([asdict(check) for check in checks])
    else:
        _print_table(checks)
    if any(check.state == "broken" for check in checks):
        raise typer.Exit(1)


def _print_table(checks: list[Check]) -> None:
    from rich.text import Text

    styles = {"ok": "green", "missing": "yellow", "broken": "bold red"}
    rows = [(c.area, c.what, Text(c.state, styles[c.state]), c.found, c.remedy) for c in checks]
    headings = ("where", "what", "state", "found", "to mend it")
    print_table(headings, rows, fold=("found", "to mend it"), grouped=True)
