"""Hand-made scores."""

from collections.abc import Callable
from typing import Any

import pytest

from fewshift.evaluation.scores import Read, Score

BASE: dict[str, Any] = {
    "method": "ncc",
    "domain": "birds",
    "split": "test",
    "index": 0,
    "accuracy": 0.5,
    "seconds": 0.25,
    "way": 5,
    "support": 25,
    "queries": 50,
    "seed": 0,
    "protocol": "varying",
    "oracle": False,
    "seen": True,
    "role": "seen",
    "revealed": True,
    "spec": "abcd",
    "pixels": "protocol-84",
    "kit": "small",
    "fingerprint": "f00d",
}


@pytest.fixture
def make_score() -> Callable[..., Score]:
    return lambda **changed: Score(**{**BASE, **changed})


@pytest.fixture
def make_reads(make_score: Callable[..., Score]) -> Callable[..., list[Read]]:
    """From {(method, domain): accuracies} to lines; a domain named u_... is unseen, v_... valid_unseen."""

    def build(table: dict[tuple[str, str], list[float]], **changed: Any) -> list[Read]:
        reads = []
        for (method, domain), accuracies in table.items():
            role = {"u": "unseen", "v": "valid_unseen"}.get(domain.split("_")[0], "seen")
            fields = {"method": method, "domain": domain, "role": role, "seen": role == "seen"}
            for index, accuracy in enumerate(accuracies):
                score = make_score(**{**fields, "index": index, "accuracy": accuracy, **changed})
                reads.append(Read(score, f"rows:{len(reads) + 1}"))
        return reads

    return build
