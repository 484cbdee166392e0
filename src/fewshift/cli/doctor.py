"""`fewshift doctor`: what this machine and these data can do, and the command that mends what is missing."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

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
    from fewshift.cli.any_text import print_any_text
    from fewshift.cli.doctor_checks import check_data, check_extras, check_machine, check_torch
    from fewshift.cli.doctor_folder import check_folder

    print_any_text("utf-8" if as_json else None)
    checks = [*check_machine(), *check_torch(), *check_extras(), *check_data()]
    if folder is not None:
        checks += check_folder(folder)
    if as_json:
        import json

        typer.echo(json.dumps([asdict(check) for check in checks], indent=1, ensure_ascii=False))
    else:
        _print_table(checks)
    if any(check.state == "broken" for check in checks):
        raise typer.Exit(1)


def _print_table(checks: list[Check]) -> None:
    from rich.text import Text

    from fewshift.cli.tables import add_row, plain_table, print_table

    styles = {"ok": "green", "missing": "yellow", "broken": "bold red"}
    table = plain_table(("where", "what", "state", "found", "to mend it"), fold=("found", "to mend it"))
    before = None
    for check in checks:
        if before not in (None, check.area):
            table.add_section()
        area = check.area if check.area != before else ""
        add_row(table, area, check.what, Text(check.state, styles[check.state]), check.found, check.remedy)
        before = check.area
    print_table(table)
