"""`fewshift data list`: suites and domains with counts, roles, licences and makers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from fewshift.cli.console import print_json, print_table
from fewshift.cli.options import JsonOption

if TYPE_CHECKING:
    from fewshift.data.domain import Domain, Provenance
    from fewshift.data.spec import Spec


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    suite: str
    domain: str
    role: str
    classes: dict[str, int]  # by split
    images: int
    here: str  # where the domain is, or what fetching it takes
    licence: str
    origin: str
    attribution: str


def list_suites(
    suite: Annotated[
        str | None,
        typer.Argument(help="One suite: a name, a folder, a .json file. Default: all named suites."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the suites and their domains: classes, images, roles, licences, makers, and what is here.

    Example: `fewshift data list`, `fewshift data list ~/records`
    """
    from fewshift.data.suites import data_folder

    rows = _rows(suite)
    if as_json:
        print_json([asdict(row) for row in rows])
        return
    _print_table(rows)
    typer.echo(f"Data folder: {data_folder()} (set FEWSHIFT_DATA to use another one)", err=True)


def _rows(suite: str | None) -> list[Row]:
    from fewshift.data.suites import data_folder, open_suite

    if suite == "open":
        return _open_rows()
    if suite is not None:
        opened = open_suite(suite, cached=False)
        return _rows_of(opened.name, opened, "by code" if suite == "drawn" else "here")
    rows = [*_rows_of("drawn", open_suite("drawn"), "by code"), *_open_rows()]
    if (data_folder() / "md").is_dir():
        rows += _rows_of("md", open_suite("md", cached=False), "here")
    return rows


def _rows_of(suite: str, domains: Iterable[Domain], here: str) -> list[Row]:
    return [_row(suite, domain.spec, domain.role, domain.provenance, here) for domain in domains]


def _open_rows() -> list[Row]:
    from fewshift.data.open_suite.build import is_built, packages_of, provenance_of
    from fewshift.data.open_suite.sources import sources
    from fewshift.data.suites import data_folder

    rows = []
    for source in sources().values():
        size = sum(package.size for package in packages_of([source])) / 1e6
        here = "here" if is_built(source, data_folder() / "open") else f"to fetch, {size:.0f} MB"
        here += ", optional" if source.optional and here != "here" else ""
        rows.append(_row("open", source.spec, source.role, provenance_of(source), here))
    return rows


def _row(suite: str, spec: Spec, role: str, provenance: Provenance, here: str) -> Row:
    from fewshift.types import SPLITS

    return Row(
        suite=suite,
        domain=spec.name,
        role=role,
        classes={split: len(spec.splits[split]) for split in SPLITS},
        images=sum(spec.images_per_class),
        here=here,
        **asdict(provenance),
    )


def _print_table(rows: list[Row]) -> None:
    counts = "train/valid/test"
    cells = [
        (
            row.suite,
            row.domain,
            row.role,
            "/".join(map(str, row.classes.values())),
            f"{row.images:,}",
            row.here,
        )
        for row in rows
    ]
    headings = ("suite", "domain", "role", counts, "images", "here?")
    print_table(headings, cells, right=(counts, "images"), fold=("here?",), grouped=True)
    for suite in dict.fromkeys(row.suite for row in rows):
        typer.echo(f"\n{suite}: origin (licence), makers")
        lines: dict[str, list[str]] = {}  # what holds for several domains is printed once
        for row in (row for row in rows if row.suite == suite):
            text = f"{row.origin or 'origin not stated'} ({row.licence})"
            lines.setdefault(f"{text}, {row.attribution}" if row.attribution else text, []).append(row.domain)
        for text, domains in lines.items():
            typer.echo(f"  {', '.join(domains)}: {text}")
