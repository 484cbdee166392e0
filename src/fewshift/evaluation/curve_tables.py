"""A learning curve's tables: accuracy, paired differences, calibration, cost, and what is taken for what."""

from __future__ import annotations

from statistics import median

from fewshift.evaluation.board_tables import percent, too_few
from fewshift.evaluation.calibration import expected_calibration_error, reliability
from fewshift.evaluation.confusion import Confusion, confusion
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


def accuracy_by_shot(found: CurveScores) -> Table:
    """Mean ± half-width by shots and method."""
    rows = [
        Row(shot_words(shot), mark_best(percent(found.accuracy(m, shot)) for m in found.methods))
        for shot in found.shots
    ]
    return Table(
        "Accuracy, %",
        "learned from",
        tuple(map(plain, found.methods)),
        tuple(rows),
        (
            "mean ± 1.96·sd/√n over tasks drawn from this folder; tasks share images, so the interval says "
            "how well the mean over such draws is known; bold: the highest printed mean",
            *_too_few(found),
        ),
        "accuracy",
    )


def differences_by_shot(found: CurveScores) -> Table | None:
    """The first method less each other one, task by task; None where it is alone."""
    first, *others = found.methods
    if not others:
        return None
    rows = [
        Row(shot_words(shot), tuple(percent(found.difference(first, m, shot), signed=True) for m in others))
        for shot in found.shots
    ]
    return Table(
        f"What {plain(first)} gains, percentage points, task by task",
        "learned from",
        tuple(f"over {plain(m)}" for m in others),
        tuple(rows),
        ("the same tasks on both sides; bold: the 95 % interval leaves out zero", *_too_few(found)),
        "difference",
        "points",
    )


def calibration_by_shot(found: CurveScores) -> Table:
    """The expected calibration error before and after the temperature."""
    with_temperature = [m for m in found.methods if _has_temperature(found, m)]
    head = []
    for method in found.methods:
        words = ("before", "after") if method in with_temperature else ("as it is",)
        head += [f"{plain(method)}, {word}" for word in words]
    rows = []
    for shot in found.shots:
        cells: list[Value | None] = []
        for method in found.methods:
            answers = found.answers(method, shot)
            cells += [_error(answers, before=True)] if method in with_temperature else []
            cells.append(_error(answers))
        rows.append(Row(shot_words(shot), tuple(cells)))
    return Table(
        "Expected calibration error, percentage points",
        "learned from",
        tuple(head),
        tuple(rows),
        (
            "how far the probability of the answer given is from the share of right answers, on average over "
            "ten ranges; before: the published scale of the cosine, after: the temperature chosen on the "
            "support set",
        ),
        "calibration",
        "points",
    )


def seconds_by_shot(found: CurveScores) -> Table:
    """What it costs to learn and to answer the queries of a task."""
    rows = [
        Row(
            shot_words(shot),
            tuple(
                Value(median(s.seconds for s in found.cell(m, shot).values()), decimals=2)
                for m in found.methods
            ),
        )
        for shot in found.shots
    ]
    where = sorted({f"{s.device} ({s.engine})" for s in found.scores})
    return Table(
        "Seconds a task, median",
        "learned from",
        tuple(map(plain, found.methods)),
        tuple(rows),
        (f"learning and answering all queries, on {', '.join(where)}",),
        "cost",
        "seconds",
    )


def confusion_at(found: CurveScores, method: str, shot: int) -> Confusion:
    """The answers by true class and class said."""
    return confusion([(a.truth, a.said) for a in found.answers(method, shot)], found.classes)


def _too_few(found: CurveScores) -> tuple[str, ...]:
    tasks = min(len(found.cell(m, shot)) for m in found.methods for shot in found.shots)
    return too_few(tasks)


def _has_temperature(found: CurveScores, method: str) -> bool:
    return any("scale" in s.notes for shot in found.shots for s in found.cell(method, shot).values())


def _error(answers: list[Answer], before: bool = False) -> Value | None:
    sure = [a.before if before else a.probability for a in answers]
    error = expected_calibration_error(reliability(sure, [a.right for a in answers]))
    return None if error is None else Value(100 * error, n=len(answers))
