"""What answers say together: which class is taken for which, and whether probabilities keep their word.

Of the images called "80 % sure", 80 in 100 should be right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum

BINS = 10


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


@dataclass(frozen=True, slots=True)
class Bin:
    """Answers whose probability lies in one range: how sure they were on average, and how often right."""

    low: float
    high: float
    count: int
    confidence: float  # mean probability; the middle of the range where it is empty
    accuracy: float  # 0 where it is empty


def reliability(
    probabilities: Sequence[float], right: Sequence[bool], bins: int = BINS
) -> tuple[Bin, ...]:  # (n,), (n,)
    """The answers in equally wide ranges of the probability of the answer given; 1 is in the last one."""
    if len(probabilities) != len(right):
        raise ValueError(f"{len(probabilities)} probabilities and {len(right)} answers")
    inside: list[list[int]] = [[] for _ in range(bins)]
    for place, probability in enumerate(probabilities):
        if not 0 <= probability <= 1:
            raise ValueError(f"{probability} is no probability")
        inside[min(int(probability * bins), bins - 1)].append(place)
    return tuple(
        Bin(
            number / bins,
            (number + 1) / bins,
            len(places),
            fsum(probabilities[p] for p in places) / len(places) if places else (number + 0.5) / bins,
            sum(right[p] for p in places) / len(places) if places else 0.0,
        )
        for number, places in enumerate(inside)
    )


def expected_calibration_error(bins: Sequence[Bin]) -> float | None:
    """Σ n_b/n · |accuracy_b − confidence_b| (Naeini et al., AAAI 2015); None where there are no answers.

    >>> expected_calibration_error(reliability([0.75, 0.75], [True, False]))
    0.25
    """
    answers = sum(b.count for b in bins)
    if not answers:
        return None
    return fsum(b.count * abs(b.accuracy - b.confidence) for b in bins) / answers
