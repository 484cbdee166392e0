"""A table of numbers with intervals, and its faces: Markdown, LaTeX, and rows for CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import groupby


@dataclass(frozen=True, slots=True)
class Value:
    """A number as it is printed; `half` is the half-width of its 95 % interval, `n` how many went in."""

    mean: float
    half: float | None = None
    n: int | None = None
    decimals: int = 1
    signed: bool = False
    strong: bool = False  # printed bold: the best of its row, or a difference whose sign is clear

    def text(self, plus_minus: str = " ± ") -> str:
        """The number in words of one locale: 81.6 ± 0.4."""
        sign = "+" if self.signed else ""
        mean = f"{self.mean:{sign}.{self.decimals}f}"
        return mean if self.half is None else f"{mean}{plus_minus}{self.half:.{self.decimals}f}"


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a table; rows of one `group` stand under its name."""

    label: str
    cells: tuple[Value | None, ...]
    group: str = ""
    unit: str = ""  # where it is not the table's


@dataclass(frozen=True)
class Table:
    """Numbers by row and column. `corner` heads the labels; `notes` stand beneath."""

    title: str
    corner: str
    head: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    kind: str = ""  # what the numbers are, for CSV
    unit: str = "percent"


def mark_best(cells: Iterable[Value | None]) -> tuple[Value | None, ...]:
    """The same cells with the highest printed number strong, ties included."""
    cells = tuple(cells)
    means = [round(cell.mean, cell.decimals) for cell in cells if cell is not None]
    if len(means) < 2:
        return cells
    best = max(means)
    return tuple(c and replace(c, strong=round(c.mean, c.decimals) == best) for c in cells)


def by_group(table: Table) -> list[tuple[str, list[Row]]]:
    """The rows under the names of their groups, in order."""
    return [(group, list(rows)) for group, rows in groupby(table.rows, key=lambda row: row.group)]


def markdown(table: Table) -> str:
    """The table in GitHub's Markdown, columns aligned so that it reads well in a terminal too."""
    head = [table.corner, *table.head]
    body = []
    for group, rows in by_group(table):
        if group:
            body.append([f"*{group}*", *("" for _ in table.head)])
        body += [[row.label, *(_markdown_cell(cell) for cell in row.cells)] for row in rows]
    lines = [[text.replace("|", "\\|") for text in line] for line in [head, *body]]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]

    def join(line: list[str]) -> str:
        first, *rest = line
        cells = [first.ljust(widths[0]), *(c.rjust(w) for c, w in zip(rest, widths[1:], strict=True))]
        return "| " + " | ".join(cells) + " |"

    rule = "|" + "-" * (widths[0] + 2) + "|" + "".join("-" * (w + 1) + ":|" for w in widths[1:])
    parts = [f"### {table.title}", "", join(lines[0]), rule, *map(join, lines[1:])]
    if table.notes:
        parts += ["", *(f"- {note}" for note in table.notes)]
    return "\n".join(parts)


def _markdown_cell(cell: Value | None) -> str:
    if cell is None:
        return "–"
    return f"**{cell.text()}**" if cell.strong else cell.text()


_LATEX = {
    "\\": r"\textbackslash{}",
    "_": r"\_",
    "%": r"\%",
    "&": r"\&",
    "#": r"\#",
    "$": r"\$",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "°": r"$^\circ$",
    "²": r"$^2$",
    "±": r"$\pm$",
    "√": r"$\surd$",
    "·": r"$\cdot$",
    "–": "--",
}


def escape_latex(text: str) -> str:
    """The text with LaTeX's own characters escaped."""
    return "".join(_LATEX.get(character, character) for character in text)


def latex(table: Table, of: str = "") -> str:
    """The table as a `table` environment that needs no package; `of` says which tasks it is of."""
    title = f"{table.title}: {of}" if of else table.title
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{escape_latex('. '.join([title, *table.notes]))}.}}",
        r"\begin{tabular}{l" + "r" * len(table.head) + "}",
        r"\hline",
        " & ".join(escape_latex(text) for text in [table.corner, *table.head]) + r" \\",
    ]
    for group, rows in by_group(table):
        lines.append(r"\hline")
        if group:
            lines.append(
                rf"\multicolumn{{{len(table.head) + 1}}}{{l}}{{\textit{{{escape_latex(group)}}}}} \\"
            )
        lines += [" & ".join([escape_latex(r.label), *map(_latex_cell, r.cells)]) + r" \\" for r in rows]
    return "\n".join([*lines, r"\hline", r"\end{tabular}", r"\end{table}"])


def _latex_cell(cell: Value | None) -> str:
    if cell is None:
        return "--"
    text = cell.text(r"\,$\pm$\,").replace("-", "$-$")
    return rf"\textbf{{{text}}}" if cell.strong else text


CSV_HEAD = ("board", "table", "group", "row", "column", "mean", "half_width", "n", "unit")


def csv_rows(board: str, table: Table) -> list[tuple[str, ...]]:
    """One row per number, so that a script need not take a printed table apart."""
    return [
        (
            board,
            table.kind or table.title,
            row.group,
            row.label,
            column,
            repr(round(cell.mean, 6)),
            "" if cell.half is None else repr(round(cell.half, 6)),
            "" if cell.n is None else str(cell.n),
            row.unit or table.unit,
        )
        for row in table.rows
        for column, cell in zip(table.head, row.cells, strict=True)
        if cell is not None
    ]


def csv_text(rows: Iterable[tuple[str, ...]]) -> str:
    """Rows under `CSV_HEAD`, as text."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(CSV_HEAD)
    writer.writerows(rows)
    return buffer.getvalue()
