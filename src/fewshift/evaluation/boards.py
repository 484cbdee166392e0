"""Scores sorted into boards: one board per set of identical tasks, one column per contender."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from fewshift.errors import DataError
from fewshift.evaluation.scores import Read, Score
from fewshift.evaluation.statistics import Interval, combined, interval, paired

# in the order of printing; valid_unseen is in no average but its own
ROLES = ("seen", "unseen", "valid_unseen")
ORACLE_MARK = "°"


@dataclass(frozen=True, slots=True)
class Contender:
    """A column: a method, whether it used the oracle, and the kit it was built from."""

    method: str
    oracle: bool
    fingerprint: str | None


@dataclass(frozen=True, slots=True)
class TaskSet:
    """What decides which tasks are sampled and how their images look."""

    protocol: str
    split: str
    seed: int
    pixels: str | None

    def words(self) -> str:
        """The set in one phrase, as a heading."""
        pixels = f", {self.pixels}" if self.pixels else ""
        return f"{self.protocol}, {self.split} classes, seed {self.seed}{pixels}"


@dataclass(frozen=True)
class Board:
    """All scores on one set of tasks."""

    tasks: TaskSet
    cells: Mapping[Contender, Mapping[str, Mapping[int, Score]]]  # contender -> domain -> task index -> score
    roles: Mapping[str, str]  # domain -> role, in order of printing
    repeated: int = 0  # lines that said again what another line had said

    @property
    def contenders(self) -> tuple[Contender, ...]:
        """The columns, in the order in which the files name them."""
        return tuple(self.cells)

    def scores(self) -> list[Score]:
        """Every score of the board."""
        return [
            s for by_domain in self.cells.values() for tasks in by_domain.values() for s in tasks.values()
        ]

    def one_of(self, contender: Contender) -> Score:
        """Any score of a column: its method and its kit are those of all."""
        return next(iter(next(iter(self.cells[contender].values())).values()))

    @cached_property
    def labels(self) -> dict[Contender, str]:
        """A heading for each column: as short as it can be without two being alike; ° marks the oracle."""
        kits = {s.fingerprint: s.kit or s.fingerprint or "no kit" for s in self.scores()}
        by_method: dict[str, list[Contender]] = {}
        for contender in self.contenders:
            by_method.setdefault(contender.method, []).append(contender)
        labels = {}
        for contender in self.contenders:
            rivals = by_method[contender.method]
            several = len({r.fingerprint for r in rivals}) > 1
            kit = f" @{kits[contender.fingerprint]}" if several else ""
            labels[contender] = contender.method + kit + (ORACLE_MARK if contender.oracle else "")
        if len(set(labels.values())) < len(labels):  # two kits of one name
            return {c: f"{label} ({c.fingerprint})" for c, label in labels.items()}
        return labels

    def domains(self, *roles: str) -> list[str]:
        """The domains of these roles, in order; of all roles when none is given."""
        return [domain for domain, role in self.roles.items() if not roles or role in roles]

    def accuracies(self, contender: Contender, domain: str) -> dict[int, float]:
        """Task index -> accuracy."""
        return {index: s.accuracy for index, s in self.cells[contender].get(domain, {}).items()}

    def mean(self, contender: Contender, domain: str) -> Interval | None:
        """The accuracy on a domain; None where there is none."""
        values = list(self.accuracies(contender, domain).values())
        return interval(values) if values else None

    def average(self, contender: Contender, domains: Iterable[str]) -> Interval | None:
        """The unweighted mean over these domains; None where one has no results: averages are compared."""
        means = [self.mean(contender, domain) for domain in domains]
        found = [mean for mean in means if mean is not None]
        return combined(found) if len(found) == len(means) else None

    def difference(self, ours: Contender, theirs: Contender, domain: str) -> Interval | None:
        """The paired difference on a domain: ours less theirs, over the tasks both have."""
        return paired(self.accuracies(ours, domain), self.accuracies(theirs, domain))

    def average_difference(
        self, ours: Contender, theirs: Contender, domains: Iterable[str]
    ) -> Interval | None:
        """The mean over domains of the paired differences."""
        return combined(d for name in domains if (d := self.difference(ours, theirs, name)) is not None)


@dataclass
class _Draft:
    """A board while lines are still coming."""

    cells: dict[Contender, dict[str, dict[int, Read]]] = field(default_factory=dict)
    roles: dict[str, str] = field(default_factory=dict)
    specs: dict[str, tuple[str | None, str]] = field(default_factory=dict)
    repeated: int = 0


def gather(reads: Iterable[Read]) -> list[Board]:
    """Sort lines of any number of files into boards; refuse lines that contradict each other."""
    drafts: dict[TaskSet, _Draft] = {}
    for read in reads:
        score = read.score
        tasks = TaskSet(score.protocol, score.split, score.seed, score.pixels)
        _add(drafts.setdefault(tasks, _Draft()), read)
    return [_finished(tasks, draft) for tasks, draft in drafts.items()]


def _add(draft: _Draft, read: Read) -> None:
    score = read.score
    spec, first = draft.specs.setdefault(score.domain, (score.spec, read.where))
    if spec != score.spec:
        raise DataError(
            f"{read.where}: {score.domain} held other classes or images than at {first}, so tasks differ; "
            "report the files apart"
        )
    role = score.role or {True: "seen", False: "unseen", None: "unknown"}[score.seen]
    if draft.roles.setdefault(score.domain, role) != role:
        raise DataError(
            f"{read.where}: {score.domain} is {role} here and {draft.roles[score.domain]} at {first} "
            "(kits trained on other domains); report the files apart"
        )
    contender = Contender(score.method, score.oracle, score.fingerprint)
    tasks = draft.cells.setdefault(contender, {}).setdefault(score.domain, {})
    known = tasks.setdefault(score.index, read)
    if known is read:
        return
    if known.score.accuracy != score.accuracy:
        raise DataError(
            f"{read.where}: {score.method} on {score.domain} task {score.index} has another accuracy than at "
            f"{known.where}; report the files apart"
        )
    draft.repeated += 1


def _finished(tasks: TaskSet, draft: _Draft) -> Board:
    order = [*ROLES, "unknown"]
    known = sorted(
        draft.roles, key=lambda d: order.index(draft.roles[d]) if draft.roles[d] in order else len(order)
    )
    cells = {
        contender: {
            domain: {index: read.score for index, read in sorted(reads.items())}
            for domain, reads in by_domain.items()
        }
        for contender, by_domain in draft.cells.items()
    }
    return Board(tasks, cells, {domain: draft.roles[domain] for domain in known}, draft.repeated)
