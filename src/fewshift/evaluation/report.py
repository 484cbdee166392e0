"""Scores in, tables out. Nothing here runs a model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fewshift.errors import FewshiftError
from fewshift.evaluation.board_tables import accuracy_table, cost_table, difference_table, published_table
from fewshift.evaluation.boards import ORACLE_MARK, Board, Contender, gather
from fewshift.evaluation.facts import facts, warnings
from fewshift.evaluation.published import published
from fewshift.evaluation.scores import Read, Score
from fewshift.evaluation.summary import summary_table
from fewshift.evaluation.tables import Table, csv_rows, csv_text, latex, markdown


@dataclass(frozen=True)
class Section:
    """All that is said of one board: facts, tables, warnings."""

    title: str
    facts: tuple[tuple[str, str], ...]
    tables: tuple[Table, ...]  # accuracy, one of differences for each baseline, cost; or the summary
    warnings: tuple[str, ...]
    board: Board
    baselines: tuple[Contender, ...]
    is_summary: bool = False


@dataclass(frozen=True)
class Report:
    """What a results file says, ready to be printed."""

    sections: tuple[Section, ...]
    published: tuple[Table, ...] = ()

    def markdown(self) -> str:
        """The report in Markdown."""
        parts = ["# Results"]
        for section in self.sections:
            parts += [f"## {section.title}", "\n".join(f"- {name}: {text}" for name, text in section.facts)]
            parts += [f"> {warning}" for warning in section.warnings]
            parts += [markdown(table) for table in section.tables]
        if self.published:
            parts += ["## Published numbers", PUBLISHED_NOTE, *map(markdown, self.published)]
        return "\n\n".join(parts) + "\n"

    def latex(self) -> str:
        """The tables in LaTeX."""
        tables = [latex(table, section.title) for section in self.sections for table in section.tables]
        return "\n\n".join([*tables, *map(latex, self.published)]) + "\n"

    def csv(self) -> str:
        """Every number of every table, one a row."""
        rows = [r for section in self.sections for t in section.tables for r in csv_rows(section.title, t)]
        rows += [row for table in self.published for row in csv_rows("published", table)]
        return csv_text(rows)


PUBLISHED_NOTE = (
    "As printed in the TSP paper (AAAI 2025) and in the README of the URL repository: Meta-Dataset's own "
    "domains, other runs, other tasks. To be read beside the numbers above, not in one column with them."
)


def make_report(
    reads: Iterable[Read],
    baselines: Sequence[str] | None = None,
    with_published: bool = False,
    *,
    summary: bool = False,
    methods: Sequence[str] | None = None,
    tasks: int | None = None,
) -> Report:
    """Tables of these lines, with differences to the `baselines` (tsa and gd, or the first method).

    A `summary` has one table a board with a row a method, in place of those with a row a domain. Of many
    methods, `methods` are shown, and the baselines. `tsa @narrow` is `tsa` of the kit `narrow` alone.
    With `tasks`, only so many first tasks of each domain count, whatever more some methods have.
    """
    reads = [read for read in reads if tasks is None or read.score.index < tasks]
    if not reads:
        among = "" if tasks is None else f" of a domain's first {tasks} tasks"
        raise FewshiftError(f"there is no score{among} in these files: run fewshift evaluate first")
    refuse_unknown("method", methods, reads)
    refuse_unknown("baseline", baselines, reads)
    if methods:
        shown = {plain(name) for name in (*methods, *(baselines or ()))}
        reads = [read for read in reads if names_of(read.score) & shown]
    boards = gather(reads)
    protocols = dict.fromkeys(board.tasks.protocol for board in boards)
    tables = [published_table(t) for p in protocols for t in published(p)] if with_published else []
    return Report(tuple(section_of(board, baselines, summary) for board in boards), tuple(tables))


def refuse_unknown(what: str, asked: Sequence[str] | None, reads: Sequence[Read]) -> None:
    """Raise where a name that was asked for has no line; say which names have some."""
    for name in asked or ():
        if not any(plain(name) in names_of(read.score) for read in reads):
            there = {f"{r.score.method}@{r.score.kit}" if "@" in name else r.score.method for r in reads}
            raise FewshiftError(f"no results of the {what} {name!r}; there are {', '.join(sorted(there))}")


def names_of(score: Score) -> frozenset[str]:
    """What a line's method can be asked for by: its name, alone or with its kit, as a table's head has it."""
    short = (score.method, f"{score.method}@{score.kit}")
    return frozenset((*short, *(f"{name} ({score.fingerprint})" for name in short)))


def plain(name: str) -> str:
    """A name as a table prints it, without its spaces and its mark of the oracle: `tsa @narrow°`."""
    method, _, kit = name.replace(ORACLE_MARK, "").partition("@")
    return f"{method.strip()}@{kit.strip()}" if kit else method.strip()


def section_of(board: Board, baselines: Sequence[str] | None = None, summary: bool = False) -> Section:
    """A board's facts, tables and warnings; a baseline that it lacks is named among the warnings."""
    called = {contender: names_of(board.one_of(contender)) for contender in board.contenders}
    methods = list(dict.fromkeys(contender.method for contender in board.contenders))
    names = baselines or [name for name in ("tsa", "gd") if name in methods] or methods[:1]
    found = {name: [c for c, own in called.items() if plain(name) in own] for name in names}
    against = tuple(dict.fromkeys(c for contenders in found.values() for c in contenders))
    lacking = [f"no results of {name} here, so no differences to it" for name in names if not found[name]]
    if len(board.contenders) == 1:
        against = ()
    differences = (difference_table(board, baseline) for baseline in against)
    tables: tuple[Table, ...] = (accuracy_table(board), *differences, cost_table(board))
    if summary:
        tables = (summary_table(board, against),)
    said = (*warnings(board), *lacking)
    return Section(board.tasks.words(), facts(board), tables, said, board, against, summary)
