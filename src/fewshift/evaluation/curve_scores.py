"""A learning curve as its lines: accuracies by method and shots, and the answer about every image."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from fewshift.errors import DataError
from fewshift.evaluation.scores import Score
from fewshift.evaluation.statistics import Interval, interval, paired


@dataclass(frozen=True, slots=True)
class Answer:
    """What a method said of one query image."""

    file: str  # class/file, as in the folder
    truth: str
    said: str
    probability: float  # of what was said
    before: float  # the same before the temperature

    @property
    def right(self) -> bool:
        """Whether it is its class."""
        return self.truth == self.said


def answers_of(score: Score) -> list[Answer]:
    """The answers in a line."""
    try:
        rows = score.notes["answers"]
        return [Answer(file, file.split("/")[0], said, sure, before) for file, said, sure, before in rows]
    except (KeyError, TypeError, ValueError, AttributeError):
        raise DataError(
            f"{score.method} on {score.domain} task {score.index}: the line has no answers in its notes: "
            "it was not written by a learning curve, give another --out"
        ) from None


def domain_of_shot(name: str, shot: int) -> str:
    """The name of a folder's tasks with so many shots: each shot is a row of its own in every report."""
    return f"{name} {shot}-shot"


@dataclass(frozen=True)
class CurveScores:
    """The lines of one folder; the first method is the one that the others are held against."""

    name: str
    classes: tuple[str, ...]
    methods: tuple[str, ...]
    shots: tuple[int, ...]
    scores: tuple[Score, ...]

    @cached_property
    def _cells(self) -> dict[tuple[str, str], dict[int, Score]]:
        cells: dict[tuple[str, str], dict[int, Score]] = {}
        for score in self.scores:
            cells.setdefault((score.method, score.domain), {})[score.index] = score
        return cells

    def cell(self, method: str, shot: int) -> dict[int, Score]:
        """Task index -> score."""
        return self._cells.get((method, domain_of_shot(self.name, shot)), {})

    def accuracy(self, method: str, shot: int) -> Interval:
        """The mean over tasks."""
        return interval([score.accuracy for score in self.cell(method, shot).values()])

    def difference(self, ours: str, theirs: str, shot: int) -> Interval | None:
        """Ours less theirs, task by task."""
        first, second = (
            {index: score.accuracy for index, score in self.cell(method, shot).items()}
            for method in (ours, theirs)
        )
        return paired(first, second)

    def answers(self, method: str, shot: int) -> list[Answer]:
        """All that the method said at this number of shots."""
        return [answer for score in self.cell(method, shot).values() for answer in answers_of(score)]

    @property
    def failures(self) -> list[str]:
        """What went wrong, in words."""
        return [f"{s.method} on {s.domain} task {s.index}: {s.failure}" for s in self.scores if s.failure]


@dataclass(frozen=True)
class Mistake:
    """An image that got a wrong name, in one task or several."""

    file: str
    truth: str
    said: str  # the wrong name it got most often
    probability: float  # mean over the times it was called that
    wrong: int
    asked: int


def mistakes(answers: Iterable[Answer], most: int) -> tuple[Mistake, ...]:
    """Images that were called something else: first those that were so most often and most surely."""
    by_file: dict[str, list[Answer]] = {}
    for answer in answers:
        by_file.setdefault(answer.file, []).append(answer)
    found = [_mistake(file, told) for file, told in by_file.items() if not all(a.right for a in told)]
    return tuple(sorted(found, key=lambda m: (-m.wrong / m.asked * m.probability, m.file))[:most])


def _mistake(file: str, told: Sequence[Answer]) -> Mistake:
    wrong = [answer for answer in told if not answer.right]
    names = [answer.said for answer in wrong]
    said = max(sorted(set(names)), key=names.count)
    sure = [answer.probability for answer in wrong if answer.said == said]
    return Mistake(file, told[0].truth, said, sum(sure) / len(sure), len(wrong), len(told))
