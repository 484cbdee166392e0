"""A board's tables: accuracy with averages and ranks, paired differences, cost; and the published ones."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from fewshift.evaluation.boards import ORACLE_MARK, Board, Contender
from fewshift.evaluation.published import REGIMES, PublishedTable
from fewshift.evaluation.statistics import Interval, competition_ranks, fractional_ranks, mean_ranks
from fewshift.evaluation.tables import Row, Table, Value, mark_best

# Label, roles. Domains of role valid_unseen served to choose things and stay out of the other averages.
AVERAGES = (
    ("seen", ("seen",)),
    ("unseen", ("unseen",)),
    ("all", ("seen", "unseen")),
    ("valid_unseen", ("valid_unseen",)),
)
AVERAGE_GROUP = "average over domains"
FEW_TASKS = 5  # with fewer, their spread says little of the spread of all


def accuracy_table(board: Board) -> Table:
    """Mean ± half-width by domain, averages, and both kinds of rank."""
    columns = board.contenders
    by_domain = [
        Row(domain, mark_best(percent(board.mean(c, domain)) for c in columns), role)
        for domain, role in board.roles.items()
    ]
    averages = [
        Row(label, mark_best(percent(board.average(c, domains)) for c in columns), AVERAGE_GROUP)
        for label, domains in averaged(board)
    ]
    return Table(
        title="Accuracy, %",
        corner="domain",
        head=tuple(board.labels[c] for c in columns),
        rows=(*by_domain, *averages, *_rank_rows(board)),
        notes=_accuracy_notes(board),
        kind="accuracy",
    )


def averaged(board: Board) -> list[tuple[str, list[str]]]:
    """The averages that say something here, with their domains."""
    found = [(label, board.domains(*roles)) for label, roles in AVERAGES]
    both = board.domains("seen") and board.domains("unseen")
    known = [(label, domains) for label, domains in found if domains and (both or label != "all")]
    return known or [("all", board.domains())]  # it is not known which domains were trained on


def percent(found: Interval | None, signed: bool = False) -> Value | None:
    """An interval of shares as a number of the table, in percent or in points."""
    if found is None:
        return None
    strong = signed and found.excludes_zero
    return Value(100 * found.mean, 100 * found.half, found.n, signed=signed, strong=strong)


def too_few(tasks: int) -> tuple[str, ...]:
    """The note that is due where so few tasks went into a mean."""
    few = f"{tasks} task{'s' if tasks > 1 else ''} only: the intervals say next to nothing, give more --tasks"
    return (few,) if tasks < FEW_TASKS else ()


def fewest_tasks(board: Board) -> int:
    """Of the contender and domain with the fewest."""
    return min(len(tasks) for by_domain in board.cells.values() for tasks in by_domain.values())


def fewest_shared(board: Board, baseline: Contender) -> int:
    """Of the contender and domain that share the fewest with the baseline, where they share any."""
    found = (board.difference(c, baseline, d) for c in board.contenders if c != baseline for d in board.roles)
    return min((shared.n for shared in found if shared is not None), default=fewest_tasks(board))


def _rank_rows(board: Board) -> list[Row]:
    """Average ranks over seen and unseen domains (over all there are, when none has such a role)."""
    if len(board.contenders) < 2:
        return []
    domains = board.domains("seen", "unseen") or board.domains()
    means = ranked(board, domains)
    fractional = mean_ranks(fractional_ranks(row) for row in means)
    return [
        Row(
            label,
            tuple(Value(ranks[c], n=len(means)) if c in ranks else None for c in board.contenders),
            "average rank",
            "rank",
        )
        for label, ranks in (("competition", competition(board, domains)), ("fractional", fractional))
    ]


def competition(board: Board, domains: Sequence[str]) -> dict[Contender, float]:
    """Ranks as papers print them, averaged over the domains that all have."""
    means = ranked(board, domains)
    return mean_ranks(competition_ranks({c: m.mean for c, m in row.items()}) for row in means)


def ranked(board: Board, domains: Sequence[str]) -> list[dict[Contender, Interval]]:
    """The means on each domain that all have: who is alone on a domain is not the first there."""
    found = (
        {c: m for c in board.contenders if (m := board.mean(c, domain)) is not None} for domain in domains
    )
    return [means for means in found if len(means) == len(board.contenders)]


def _accuracy_notes(board: Board) -> tuple[str, ...]:
    notes = [
        "mean ± 1.96·sd/√n over tasks (population sd); averages weigh domains equally and their intervals "
        "combine the domains'; bold: the highest printed mean"
    ]
    if any(board.average(c, domains) is None for c in board.contenders for _, domains in averaged(board)):
        notes.append("a method that lacks a domain has no average over it: other domains, other difficulty")
    if len(board.contenders) > 1:
        notes.append(
            "ranks are averages over domains: competition ranks compare means at one decimal and ties share "
            "the best (as papers print them); fractional ranks tie what intervals cannot tell apart "
            "(Meta-Dataset's leaderboard)"
        )
        domains = board.domains("seen", "unseen") or board.domains()
        if (shared := len(ranked(board, domains))) < len(domains):
            notes.append(f"ranks are over the {shared} of {len(domains)} domains that all methods have")
    if board.domains("valid_unseen"):
        notes.append(
            "valid_unseen domains served to choose settings and are in no other average, and in no rank"
        )
    if any(c.oracle for c in board.contenders):
        notes.append(
            f"{ORACLE_MARK} used the oracle: test rates were chosen knowing whether the domain was trained on"
        )
    return (*notes, *too_few(fewest_tasks(board)))


def difference_table(board: Board, baseline: Contender) -> Table:
    """Paired differences of every other contender to the baseline, in percentage points."""
    others = tuple(c for c in board.contenders if c != baseline)
    rows = [
        Row(domain, tuple(percent(board.difference(c, baseline, domain), signed=True) for c in others), role)
        for domain, role in board.roles.items()
    ]
    for label, domains in averaged(board):
        cells = tuple(percent(board.average_difference(c, baseline, domains), signed=True) for c in others)
        rows.append(Row(label, cells, AVERAGE_GROUP))
    return Table(
        title=f"Difference to {board.labels[baseline]}, percentage points, task by task",
        corner="domain",
        head=tuple(board.labels[c] for c in others),
        rows=tuple(rows),
        notes=(
            "same tasks on both sides; bold: the 95 % interval leaves out zero",
            *unshared_domains(board, baseline, others),
            *too_few(fewest_shared(board, baseline)),
        ),
        kind=f"difference to {board.labels[baseline]}",
        unit="points",
    )


def unshared_domains(board: Board, baseline: Contender, others: Sequence[Contender]) -> tuple[str, ...]:
    """Whose average difference is over fewer domains than the others', and without which."""
    without = {
        board.labels[c]: [d for d in board.roles if board.difference(c, baseline, d) is None] for c in others
    }
    told = "; ".join(f"{label} without {', '.join(names)}" for label, names in without.items() if names)
    return (f"an average here is over the domains that both sides have: {told}",) if told else ()


def cost_table(board: Board) -> Table:
    """What a task costs: seconds, and peak memory where the device counts it."""
    by_column = [[s for tasks in board.cells[c].values() for s in tasks.values()] for c in board.contenders]
    seconds = [[s.seconds for s in scores] for scores in by_column]
    memory = [[s.memory / 2**20 for s in scores if s.memory is not None] for scores in by_column]
    rows = [
        Row("seconds a task, mean", tuple(Value(sum(v) / len(v), n=len(v), decimals=3) for v in seconds)),
        Row("seconds a task, median", tuple(Value(median(v), n=len(v), decimals=3) for v in seconds)),
    ]
    if any(memory):
        peaks = tuple(Value(max(v), n=len(v), decimals=0) if v else None for v in memory)
        rows.append(Row("peak memory, MiB", peaks))
    devices = sorted({f"{s.device} ({s.engine or 'engine not stated'})" for s in board.scores() if s.device})
    return Table(
        title="Cost",
        corner="",
        head=tuple(board.labels[c] for c in board.contenders),
        rows=tuple(rows),
        notes=(f"adaptation and prediction of one task; measured on {', '.join(devices)}",)
        if devices
        else (),
        kind="cost",
        unit="as the row says",
    )


def published_table(table: PublishedTable) -> Table:
    """A published table with its regimes beneath."""
    marks = dict(zip(REGIMES, "abc", strict=True))
    head = tuple(f"{column.method} [{marks[column.regime]}]" for column in table.columns)
    rows = [
        Row(domain, numbers, "seen" if domain in table.seen else "unseen")
        for domain, numbers in table.numbers.items()
    ]
    for label, seen in (("seen", True), ("unseen", False), ("all", None)):
        cells = tuple(Value(table.average(i, seen)) for i in range(len(table.columns)))
        rows.append(Row(label, cells, AVERAGE_GROUP))
    used = {column.regime for column in table.columns}
    notes = [f"[{marks[regime]}] {regime}: {words}" for regime, words in REGIMES.items() if regime in used]
    by_note: dict[str, list[str]] = {}
    for i, column in enumerate(table.columns):
        lacking = ", ".join(domain for domain, numbers in table.numbers.items() if numbers[i] is None)
        fewer = lacking and f"averages are without {lacking}: not to be compared with the others'"
        for note in filter(None, (column.note, fewer)):
            by_note.setdefault(note, []).append(column.method)
    notes += [f"{', '.join(methods)}: {note}" for note, methods in by_note.items()]
    return Table(table.title, "domain", head, tuple(rows), tuple(notes), kind=table.title)
