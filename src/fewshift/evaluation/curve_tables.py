"""A learning curve's tables: accuracy, paired differences, calibration, cost, and what is taken for what."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from statistics import median

from fewshift.evaluation.answers import Confusion, confusion, expected_calibration_error, reliability
from fewshift.evaluation.board_tables import percent, too_few
from fewshift.evaluation.curve_scores import Answer, CurveScores
from fewshift.evaluation.tables import Row, Table, Value, mark_best

NAMES = {"linear_probe": "linear probe", "ncc": "nearest centroid"}


def plain(method: str) -> str:
    """A method's name for people."""
    return NAMES.get(method, method.replace("_", " "))


def shot_words(shot: int) -> str:
    """Shots for people.

    >>> shot_words(1), shot_words(5)
    ('1 image a class', '5 images a class')
    """
    return f"{shot} image{'s' if shot > 1 else ''} a class"


def _by_shot(
    found: CurveScores,
    title: str,
    head: Iterable[str],
    cells: Callable[[int], Iterable[Value | None]],  # of a number of shots
    notes: tuple[str, ...],
    kind: str,
    unit: str,
) -> Table:
    rows = tuple(Row(shot_words(shot), tuple(cells(shot))) for shot in found.shots)
    return Table(title, "learned from", tuple(head), rows, notes, kind, unit)


def accuracy_by_shot(found: CurveScores) -> Table:
    """Mean ± half-width by shots and method."""
    note = (
        "mean ± 1.96·sd/√n over tasks drawn from this folder; tasks share images, so the interval says how "
        "well the mean over such draws is known; bold: the highest printed mean"
    )
    return _by_shot(
        found,
        "Accuracy, %",
        map(plain, found.methods),
        lambda shot: mark_best(percent(found.accuracy(m, shot)) for m in found.methods),
        (note, *_too_few(found)),
        "accuracy",
        "percent",
    )


def differences_by_shot(found: CurveScores) -> Table | None:
    """The first method less each other one, task by task; None where it is alone."""
    first, *others = found.methods
    if not others:
        return None
    note = "the same tasks on both sides; bold: the 95 % interval leaves out zero"
    return _by_shot(
        found,
        f"What {plain(first)} gains, percentage points, task by task",
        (f"over {plain(m)}" for m in others),
        lambda shot: (percent(found.difference(first, m, shot), signed=True) for m in others),
        (note, *_too_few(found)),
        "difference",
        "points",
    )


def calibration_by_shot(found: CurveScores) -> Table:
    """The expected calibration error before and after the temperature."""
    columns: list[tuple[str, str, bool]] = []  # method, words, whether before the temperature
    for method in found.methods:
        if _has_temperature(found, method):
            columns += [(method, "before", True), (method, "after", False)]
        else:
            columns.append((method, "as it is", False))
    note = (
        "how far the probability of the answer given is from the share of right answers, on average over ten "
        "ranges; before: the published scale of the cosine, after: the temperature chosen on the support set"
    )
    return _by_shot(
        found,
        "Expected calibration error, percentage points",
        (f"{plain(method)}, {words}" for method, words, _ in columns),
        lambda shot: (_error(found.answers(method, shot), before) for method, _, before in columns),
        (note,),
        "calibration",
        "points",
    )


def seconds_by_shot(found: CurveScores) -> Table:
    """What it costs to learn and to answer the queries of a task."""

    def cells(shot: int) -> Iterator[Value]:
        for method in found.methods:
            yield Value(median(s.seconds for s in found.cell(method, shot).values()), decimals=2)

    where = sorted({f"{s.device} ({s.engine})" for s in found.scores})
    note = f"learning and answering all queries, on {', '.join(where)}"
    head = map(plain, found.methods)
    return _by_shot(found, "Seconds a task, median", head, cells, (note,), "cost", "seconds")


def confusion_at(found: CurveScores, method: str, shot: int) -> Confusion:
    """The answers by true class and class said."""
    return confusion([(a.truth, a.said) for a in found.answers(method, shot)], found.classes)


def _too_few(found: CurveScores) -> tuple[str, ...]:
    tasks = min(len(found.cell(m, shot)) for m in found.methods for shot in found.shots)
    return too_few(tasks)


def _has_temperature(found: CurveScores, method: str) -> bool:
    return any("scale" in s.notes for shot in found.shots for s in found.cell(method, shot).values())


def _error(answers: list[Answer], before: bool) -> Value | None:
    sure = [a.before if before else a.probability for a in answers]
    error = expected_calibration_error(reliability(sure, [a.right for a in answers]))
    return None if error is None else Value(100 * error, n=len(answers))
