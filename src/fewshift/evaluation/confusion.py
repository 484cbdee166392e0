"""Which class is taken for which: counts of answers by true class, nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Confusion:
    """Answers counted by true class (row) and said class (column)."""

    classes: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]

    def shares(self) -> tuple[tuple[float, ...], ...]:
        """Each row over its sum: of the images of a class, how many were called what. Empty rows stay 0."""
        return tuple(tuple(n / max(1, sum(row)) for n in row) for row in self.counts)


@dataclass(frozen=True, slots=True)
class Mixup:
    """Images of one class that were called another."""

    truth: str
    said: str
    count: int
    share: float  # of all answers about images of the true class


def confusion(answers: Iterable[tuple[str, str]], classes: Sequence[str]) -> Confusion:
    """Count (true class, said class) pairs.

    >>> confusion([("a", "a"), ("a", "b"), ("b", "b")], ["a", "b"]).counts
    ((1, 1), (0, 1))
    """
    found = Counter(answers)
    known = set(classes)
    for pair in found:
        if not known.issuperset(pair):
            raise ValueError(f"{pair} names a class that is not among {', '.join(classes)}")
    return Confusion(tuple(classes), tuple(tuple(found[t, s] for s in classes) for t in classes))


def most_confused(found: Confusion, most: int = 10) -> tuple[Mixup, ...]:
    """The pairs that are taken for each other most often: by share of the true class, then by name."""
    mixups = [
        Mixup(truth, said, found.counts[i][j], share)
        for i, (truth, row) in enumerate(zip(found.classes, found.shares(), strict=True))
        for j, (said, share) in enumerate(zip(found.classes, row, strict=True))
        if i != j and share > 0
    ]
    return tuple(sorted(mixups, key=lambda m: (-m.share, -m.count, m.truth, m.said))[:most])
