"""Tables for people: as wide as the terminal, or wide enough to read when there is none."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fewshift.cli.console import out

WITHOUT_TERMINAL = 120  # columns


def plain_table(headings: Sequence[str], right: Sequence[str] = (), fold: Sequence[str] = ()) -> Table:
    """An empty table; columns of `right` hold numbers, those of `fold` may take several lines."""
    table = Table(pad_edge=False)
    for heading in headings:
        if heading in fold:
            table.add_column(heading, overflow="fold")
        else:
            table.add_column(heading, justify="right" if heading in right else "left", no_wrap=True)
    return table


def add_row(table: Table, *cells: str | Text) -> None:
    """A row of texts as they are: brackets in them are no markup."""
    table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in cells))


def print_table(table: Table) -> None:
    """Print the table to stdout."""
    console = out if out.is_terminal else Console(width=WITHOUT_TERMINAL)
    console.print(table)
