"""The report as one page that asks for nothing from outside: no script, no font, no picture but its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from fewshift import __version__
from fewshift.evaluation.board_tables import AVERAGE_GROUP, averaged
from fewshift.evaluation.boards import Board, Contender
from fewshift.evaluation.page_style import COLOURS, STYLE
from fewshift.evaluation.report import PUBLISHED_NOTE, Report, Section
from fewshift.evaluation.svg import Curve, Group, bars, curves, dots, forest, heat_map
from fewshift.evaluation.tables import Table, Value, by_group

LONG = 90  # letters of a fact that gets a line of its own
MANY = 9  # columns, of which more stand closer together


def page(report: Report, title: str = "Few-shot results") -> str:
    """The whole page."""
    body = [f"<h1>{escape(title)}</h1>", *(_section(section) for section in report.sections)]
    if report.published:
        tables = "".join(map(table_html, report.published))
        body.append(
            f"<section><h2>Published numbers</h2><p class=warn>{escape(PUBLISHED_NOTE)}</p>{tables}</section>"
        )
    body.append(
        f"<footer>made by fewshift {__version__} from result lines; nothing here was computed anew</footer>"
    )
    return document(title, body)


def document(title: str, body: Iterable[str], more_style: str = "") -> str:
    """The parts of a body as a whole page."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><title>{escape(title)}</title>'
        f"<style>{STYLE}{more_style}</style></head>\n<body><main>\n"
        + "\n".join(body)
        + "\n</main></body></html>\n"
    )


def _section(section: Section) -> str:
    board = section.board
    parts = [f"<section><h2>{escape(section.title)}</h2>", facts_list(section.facts)]
    parts += [f"<p class=warn>{escape(warning)}</p>" for warning in section.warnings]
    if section.is_summary:
        tables = [table_html(table) for table in section.tables]
        order = [row.label for row in section.tables[0].rows]
        return "\n".join([*parts, *tables, _averages_chart(board, order), "</section>"])
    accuracy, *middle, cost = section.tables
    parts += [table_html(accuracy), _legend(board), _accuracy_chart(board)]
    for baseline, table in zip(section.baselines, middle, strict=True):
        parts += [table_html(table), _difference_chart(board, baseline)]
    parts += [_coefficients(board, contender) for contender in board.contenders]
    parts += [_curves(board), table_html(cost), "</section>"]
    return "\n".join(part for part in parts if part)


def facts_list(facts: Iterable[tuple[str, str]]) -> str:
    """Names and what they stand for, in a card."""
    items = []
    for name, words in facts:
        long = " class=long" if len(words) > LONG else ""
        items.append(f"<div{long}><dt>{escape(name)}</dt><dd>{escape(words)}</dd></div>")
    return f"<dl>{''.join(items)}</dl>"


def _legend(board: Board, contenders: Sequence[Contender] | None = None) -> str:
    return _keys(
        (i, board.labels[c]) for i, c in enumerate(board.contenders) if contenders is None or c in contenders
    )


def _keys(series: Iterable[tuple[int, str]]) -> str:
    keys = (f'<span><i class="key fill{i % COLOURS}"></i>{escape(name)}</span>' for i, name in series)
    return f"<p class=legend>{''.join(keys)}</p>"


def table_html(table: Table) -> str:
    """A table under its title, its notes beneath."""
    head = "".join(f"<th>{escape(word)}</th>" for word in table.head)
    body = []
    for group, rows in by_group(table):
        if group:
            blank = f'<td colspan="{len(table.head)}"></td>'
            body.append(f'<tr class="group"><th>{escape(group)}</th>{blank}</tr>')
        for row in rows:
            cells = "".join(f"<td>{_cell(cell)}</td>" for cell in row.cells)
            body.append(f"<tr><th>{escape(row.label)}</th>{cells}</tr>")
    notes = "".join(f"<p class=note>{escape(note)}</p>" for note in table.notes)
    dense = " class=dense" if len(table.head) > MANY else ""
    return (
        f"<h3>{escape(table.title)}</h3><div class=wide><table{dense}>"
        f"<thead><tr><th>{escape(table.corner)}</th>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>{notes}"
    )


def _cell(cell: Value | None) -> str:
    if cell is None:
        return "–"
    mean, _, half = cell.text().replace("-", "−").partition(" ± ")
    words = f"<b>{mean}</b>" if cell.strong else mean
    return f"{words}<small> ± {half}</small>" if half else words


def _by_role(board: Board) -> list[tuple[str, list[str]]]:
    roles = dict.fromkeys(board.roles.values())
    return [(role, board.domains(role)) for role in roles]


def _averages(board: Board) -> list[Group]:
    averages = [(label, [board.average(c, ds) for c in board.contenders]) for label, ds in averaged(board)]
    return [Group(AVERAGE_GROUP, averages)] if averages else []


def _averages_chart(board: Board, order: Sequence[str]) -> str:
    """One line per method, in the table's order: so many have no colours of their own."""
    named = {label: contender for contender, label in board.labels.items()}
    groups = averaged(board)
    rows = [(label, [board.average(named[label], domains) for _, domains in groups]) for label in order]
    series = [label for label, _ in groups]
    return _keys(enumerate(series)) + dots(rows, series, "Average accuracy with 95 % intervals")


def _accuracy_chart(board: Board) -> str:
    groups = _averages(board)
    groups += [
        Group(heading, [(domain, [board.mean(c, domain) for c in board.contenders]) for domain in domains])
        for heading, domains in _by_role(board)
    ]
    return bars(groups, [board.labels[c] for c in board.contenders], "Accuracy by domain with 95 % intervals")


def _difference_chart(board: Board, baseline: Contender) -> str:
    others = [c for c in board.contenders if c != baseline]
    groups = [
        Group(
            heading,
            [
                *((d, [board.difference(c, baseline, d) for c in others]) for d in domains),
                ("average", [board.average_difference(c, baseline, domains) for c in others]),
            ],
        )
        for heading, domains in _by_role(board)
    ]
    colours = [board.contenders.index(c) for c in others]
    label = f"Paired differences to {board.labels[baseline]} with 95 % intervals"
    return _legend(board, others) + forest(groups, [board.labels[c] for c in others], colours, label)


def _coefficients(board: Board, contender: Contender) -> str:
    """Where the contender's preconditioner came from: test domain by training domain, mean over tasks."""
    rows: list[tuple[str, list[float]]] = []
    rules: list[int] = []
    sources: list[str] = []
    for _, domains in _by_role(board):
        rules.append(len(rows))
        for domain in domains:
            found = [s.notes.get("coefficients") for s in board.cells[contender].get(domain, {}).values()]
            shares = [f for f in found if isinstance(f, dict) and f and None not in f.values()]
            if shares:
                sources = sources or list(shares[0])
                rows.append((domain, [sum(s.get(k, 0.0) for s in shares) / len(shares) for k in sources]))
    if not rows:
        return ""
    title = f"Task coefficients of {board.labels[contender]}"
    return (
        f"<h3>{escape(title)}</h3><p class=note>rows: the task's domain; columns: the training domain whose "
        f"preconditioner is blended in; mean over tasks</p>{heat_map(rows, sources, rules, title)}"
    )


def _curves(board: Board) -> str:
    """Support loss against step: thick the mean over a role's domains, thin the domains."""
    panels = []
    shown: list[Contender] = []
    for heading, domains in _by_role(board):
        inside: list[Curve] = []
        for i, contender in enumerate(board.contenders):
            means = {d: m for d in domains if (m := _mean_losses(board, contender, d))}
            if not means:
                continue
            shown.append(contender)
            label = board.labels[contender]
            inside += [Curve(values, i, f"{label} on {d}", faint=True) for d, values in means.items()]
            inside.append(Curve(_mean(list(means.values())), i, f"{label}, mean over domains"))
        if inside:
            panels.append((heading, sorted(inside, key=lambda curve: not curve.faint)))
    if not panels:
        return ""
    return (
        "<h3>Adaptation: support loss against step</h3><p class=note>the first tasks of each domain; thin: a "
        f"domain, thick: the mean over domains</p>{_legend(board, shown)}"
        f"{curves(panels, 'Support loss by step')}"
    )


def _mean_losses(board: Board, contender: Contender, domain: str) -> list[float]:
    kept = [s.notes.get("losses") for s in board.cells[contender].get(domain, {}).values()]
    whole = [k for k in kept if isinstance(k, list) and k and all(isinstance(v, int | float) for v in k)]
    return _mean(whole) if whole else []


def _mean(lists: Sequence[Sequence[float]]) -> list[float]:
    return [sum(column) / len(column) for column in zip(*lists, strict=False)]
