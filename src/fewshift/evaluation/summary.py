"""One row per method: averages, paired differences, rank and cost. For many methods on one board."""

from __future__ import annotations

from collections.abc import Sequence

from fewshift.evaluation.board_tables import (
    averaged,
    competition,
    fewest_shared,
    fewest_tasks,
    percent,
    too_few,
    unshared_domains,
)
from fewshift.evaluation.boards import ORACLE_MARK, Board, Contender
from fewshift.evaluation.tables import Row, Table, Value

NOTES = (
    "averages weigh domains equally; differences are over all seen and unseen domains, task by task, over "
    "the tasks that both have; bold: the 95 % interval leaves out zero",
    "rank: by the mean on each domain that all methods have, averaged; tasks: of the domain with fewest; "
    "seconds: adaptation and prediction of a task, mean",
    f"{ORACLE_MARK} used the oracle: test rates were chosen knowing whether the domain was trained on",
)


def summary_table(board: Board, baselines: Sequence[Contender]) -> Table:
    """The best method first: by its difference to the first baseline, which compares the same tasks."""
    groups = [(label, domains) for label, domains in averaged(board) if label != "valid_unseen"]
    _, everywhere = groups[-1] if groups else ("", board.domains())
    ranks = competition(board, everywhere)
    rows = []
    for contender in sorted(board.contenders, key=lambda c: -_ahead(board, c, baselines, everywhere)):
        means = [percent(board.average(contender, domains)) for _, domains in groups]
        apart = [
            None
            if contender == baseline
            else percent(board.average_difference(contender, baseline, everywhere), signed=True)
            for baseline in baselines
        ]
        cost = (Value(ranks[contender]) if ranks else None, *_cost(board, contender, everywhere))
        rows.append(Row(board.labels[contender], (*means, *apart, *cost)))
    less = (f"less {board.labels[baseline]}" for baseline in baselines)
    head = (*(label for label, _ in groups), *less, "rank", "tasks", "seconds", "MiB")
    fewer = [
        note
        for baseline in baselines
        for note in unshared_domains(board, baseline, [c for c in board.contenders if c != baseline])
    ]
    fewest = min([fewest_tasks(board), *(fewest_shared(board, baseline) for baseline in baselines)])
    notes = (*NOTES, *dict.fromkeys(fewer), *too_few(fewest))
    return Table(
        "Methods, accuracy in %", "method", head, tuple(rows), notes, "summary", "as the column says"
    )


def _ahead(board: Board, ours: Contender, baselines: Sequence[Contender], domains: Sequence[str]) -> float:
    """How far ahead of the first baseline, or how good where there is none."""
    if not baselines:
        found = board.average(ours, domains)
    else:
        found = board.average_difference(ours, baselines[0], domains)
    return float("-inf") if found is None else found.mean


def _cost(board: Board, contender: Contender, domains: Sequence[str]) -> tuple[Value | None, ...]:
    cells = board.cells[contender]
    scores = [score for tasks in cells.values() for score in tasks.values()]
    fewest = min(len(cells.get(domain, {})) for domain in domains)
    memory = [score.memory for score in scores if score.memory is not None]
    return (
        Value(fewest, decimals=0),
        Value(sum(score.seconds for score in scores) / len(scores), decimals=2),
        Value(max(memory) / 2**20, decimals=0) if memory else None,
    )
