"""`fewshift methods`: what each method is, moves, needs and costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from fewshift.cli.console import print_json, print_table
from fewshift.cli.options import JsonOption

if TYPE_CHECKING:
    from fewshift.methods import About

SHORT = {
    "confirmed from code": "code",
    "stated in the paper": "paper",
    "inferred": "inferred",
    "our own": "ours",
}


def methods(
    names: Annotated[
        list[str] | None, typer.Argument(help="Some methods, each in full. Default: a table of all.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the methods: what moves for a task, what is trained first, oracle use, cost, source, fidelity.

    Example: `fewshift methods`, `fewshift methods tsp`
    """
    from fewshift.errors import FewshiftError
    from fewshift.methods import ABOUT

    for name in names or []:
        if name not in ABOUT:
            raise FewshiftError(f"there is no method {name!r}: choose among {', '.join(ABOUT)}")
    chosen = {name: ABOUT[name] for name in (names or ABOUT)}
    if as_json:
        print_json([{"name": name, **asdict(about)} for name, about in chosen.items()])
    elif names:
        _print_in_full(chosen)
    else:
        _print_table(chosen)


def _print_table(chosen: Mapping[str, About]) -> None:
    rows = []
    for name, about in chosen.items():
        trained_by = about.trained_by.replace("fewshift ", "") or "nothing"
        oracle = "yes" if about.oracle else "no"
        method = f"{about.title}\n{about.source}"
        rows.append((name, method, about.moves, trained_by, about.cost, oracle, SHORT[about.fidelity]))
    headings = ("name", "method", "moves", "trained by", "cost a task", "oracle", "fidelity")
    print_table(headings, rows, fold=headings[1:5], lines=True)
    typer.echo(
        "oracle: the published rates ask whether the domain was trained on; --no-oracle does without.\n"
        "fidelity: the least sure fact that decides a method's numbers was confirmed from its authors' code, "
        "stated in a paper, inferred, or is our own."
    )
    typer.echo("all about one: fewshift methods NAME", err=True)


def _print_in_full(chosen: Mapping[str, About]) -> None:
    for name, about in chosen.items():
        typer.echo(f"{name}: {about.title}")
        for label, text in (
            ("source", about.source),
            ("fidelity", about.fidelity),
            ("moves", about.moves),
            ("needs", about.needs),
            ("trained by", about.trained_by or "nothing: any kit will do"),
            ("oracle", "yes, unless --no-oracle" if about.oracle else "no"),
            ("cost", about.cost),
        ):
            typer.echo(f"  {label:<11}{text}")
