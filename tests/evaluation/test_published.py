"""The published numbers agree with the averages and ranks printed under them."""

import pytest

from fewshift.evaluation.published import (
    FIVE_SHOT,
    MULTI_DOMAIN,
    ONE_SHOT,
    SINGLE_DOMAIN,
    TABLES,
    PublishedTable,
    published,
)
from fewshift.evaluation.statistics import competition_ranks, mean_ranks

AVERAGES = [  # as printed: seen, unseen, all
    (
        MULTI_DOMAIN,
        "75.9 77.4 74.5 76.2 80.4 80.4 80.7 80.0 81.6 82.0 80.0 80.2",
        "64.1 62.9 69.9 69.9 70.6 78.1 79.1 70.3 79.8 80.4 69.3 77.2",
        "71.3 71.8 72.7 73.8 76.6 79.5 80.1 76.3 80.9 81.4 75.9 79.0",
    ),
    (
        SINGLE_DOMAIN,
        "52.8 51.9 56.7 46.9 59.5 59.3 57.3 60.1 60.6",
        "62.4 59.9 68.9 56.5 74.5 75.0 68.1 76.3 76.9",
        "61.4 59.1 68.0 55.8 73.3 73.8 67.3 75.0 75.7",
    ),
    (
        FIVE_SHOT,
        "69.0 71.3 73.8 76.6 76.7 77.0 76.0 77.9 78.1",
        "62.6 56.0 59.6 65.3 71.4 72.6 63.0 73.7 74.8",
        "66.5 65.4 68.3 72.2 74.6 75.3 71.0 76.3 76.8",
    ),
    (
        ONE_SHOT,
        "65.0 64.0 70.6 73.5 73.5 73.4 72.2 74.8 74.9",
        "57.7 49.6 57.5 62.5 63.3 61.3 57.5 63.9 64.1",
        "62.2 58.5 65.5 69.2 69.6 68.7 66.5 70.6 70.8",
    ),
]


@pytest.mark.parametrize(
    ("table", "seen", "unseen", "every"), AVERAGES, ids=lambda v: getattr(v, "title", "")
)
def test_averages_are_those_printed(table: PublishedTable, seen: str, unseen: str, every: str) -> None:
    for which, printed in ((True, seen), (False, unseen), (None, every)):
        for column, value in enumerate(printed.split()):
            # a tenth of slack: some sources round the domains first, some do not
            assert table.average(column, which) == pytest.approx(float(value), abs=0.101), table.columns[
                column
            ]


RANKS = [
    (MULTI_DOMAIN, 10, "8.8 8.2 8.0 7.8 5.5 4.3 3.2 5.8 1.9 1.0"),
    (FIVE_SHOT, 9, "7.9 7.8 6.6 4.9 4.3 3.5 5.8 2.2 1.4"),
    (ONE_SHOT, 9, "7.5 8.2 6.8 4.2 3.5 4.8 6.2 1.9 1.5"),
]


@pytest.mark.parametrize(("table", "width", "printed"), RANKS, ids=["multi", "five", "one"])
def test_competition_ranks_give_the_papers_rank_rows(table: PublishedTable, width: int, printed: str) -> None:
    by_domain = []
    for numbers in table.numbers.values():
        means = {c: n.mean / 100 for c, n in enumerate(numbers[:width]) if n is not None}
        by_domain.append(competition_ranks(means))
    ranks = mean_ranks(by_domain)
    assert [f"{ranks[c]:.1f}" for c in range(width)] == printed.split()


def test_flute_and_tri_m_stand_under_their_own_names() -> None:
    imagenet = dict(zip(MULTI_DOMAIN.columns, MULTI_DOMAIN.numbers["ilsvrc_2012"], strict=True))
    found = {column.method: number.mean for column, number in imagenet.items() if number is not None}
    assert found["FLUTE"] == 51.8
    assert found["tri-M"] == 58.6
    assert all(c.note for c in MULTI_DOMAIN.columns if c.method in {"FLUTE", "tri-M"})


def test_every_row_has_every_column() -> None:
    for table in TABLES:
        assert len(table.numbers) == 13
        assert all(len(row) == len(table.columns) for row in table.numbers.values())
    assert [t.protocol for t in published("varying")] == ["varying", "varying"]
    assert {c.regime for c in FIVE_SHOT.columns if c.method in {"URL", "TSA"}} == {"unshuffled"}
