"""Intervals and ranks, by hand."""

import doctest
from math import sqrt

import pytest

from fewshift.evaluation import statistics
from fewshift.evaluation.statistics import (
    Interval,
    combined,
    competition_ranks,
    fractional_ranks,
    interval,
    mean_ranks,
    paired,
)


def test_the_interval_divides_by_n_not_by_n_minus_one() -> None:
    got = interval([0.2, 0.4, 0.9])
    assert got.mean == pytest.approx(0.5)
    # squares of -0.3, -0.1, 0.4 sum to 0.26; the population's variance is 0.26 / 3
    assert got.half == pytest.approx(1.96 * sqrt(0.26 / 3) / sqrt(3))
    assert got.n == 3


def test_one_task_has_no_width_and_no_task_no_interval() -> None:
    assert interval([0.7]) == Interval(0.7, 0.0, 1)
    with pytest.raises(ValueError, match="at least one"):
        interval([])


def test_a_paired_difference_uses_shared_tasks_only() -> None:
    ours = {0: 0.5, 1: 0.7, 2: 0.9}
    theirs = {1: 0.6, 2: 0.6, 3: 0.1}
    got = paired(ours, theirs)
    assert got is not None
    assert got.mean == pytest.approx(0.2)  # 0.1 and 0.3
    assert got.half == pytest.approx(1.96 * 0.1 / sqrt(2))
    assert got.n == 2
    assert paired({0: 1.0}, {1: 1.0}) is None


def test_pairing_is_tighter_than_two_intervals_when_tasks_vary_in_difficulty() -> None:
    theirs = {i: i / 10 for i in range(10)}
    ours = {i: a + 0.05 for i, a in theirs.items()}
    got = paired(ours, theirs)
    assert got is not None
    assert got.excludes_zero
    assert interval(list(ours.values())).half > 0.1 > got.half


def test_domains_combine_with_equal_weight() -> None:
    got = combined([Interval(0.2, 0.03, 600), Interval(0.6, 0.04, 10)])
    assert got is not None
    assert (got.mean, got.half, got.n) == (pytest.approx(0.4), pytest.approx(0.025), 2)  # 0.05 / 2
    assert combined([]) is None


def test_competition_ranks_share_the_best_place_and_compare_what_is_printed() -> None:
    # 60.04 and 59.96 both print 60.0
    means = {"a": 0.6004, "b": 0.5996, "c": 0.7, "d": 0.1}
    assert competition_ranks(means) == {"c": 1.0, "a": 2.0, "b": 2.0, "d": 4.0}


def test_fractional_ranks_on_a_tied_toy_table() -> None:
    table = {
        "a": Interval(0.80, 0.01, 600),
        "b": Interval(0.79, 0.01, 600),  # within 0.0141 of a: ties
        "c": Interval(0.785, 0.01, 600),  # 0.015 from a: does not, though half-widths meet and b is close
        "d": Interval(0.50, 0.01, 600),
    }
    assert fractional_ranks(table) == {"a": 1.5, "b": 1.5, "c": 3.0, "d": 4.0}


def test_a_wide_interval_ties_past_a_narrow_one() -> None:
    table = {
        "best": Interval(0.80, 0.01, 600),
        "narrow": Interval(0.78, 0.001, 600),
        "wide": Interval(0.75, 0.2, 600),
    }
    assert fractional_ranks(table) == {"best": 1.5, "wide": 1.5, "narrow": 3.0}


def test_all_alike_share_the_middle() -> None:
    same = dict.fromkeys("abc", Interval(0.5, 0.1, 20))
    assert fractional_ranks(same) == {"a": 2.0, "b": 2.0, "c": 2.0}


def test_mean_ranks_skip_missing_results() -> None:
    assert mean_ranks([{"a": 1.0, "b": 2.0}, {"a": 2.0}]) == {"a": 1.5, "b": 2.0}


def test_examples_in_docstrings() -> None:
    failed, tried = doctest.testmod(statistics)
    assert tried >= 2
    assert failed == 0
