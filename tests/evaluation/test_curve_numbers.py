"""Confusion, calibration and mistakes: counted by hand on a few answers."""

import base64
import io

import numpy as np
import pytest
from PIL import Image

from fewshift.errors import DataError
from fewshift.evaluation.answers import (
    Mixup,
    confusion,
    expected_calibration_error,
    most_confused,
    reliability,
)
from fewshift.evaluation.curve_scores import Answer, Mistake, answers_of, mistakes
from fewshift.evaluation.scores import Score
from fewshift.evaluation.thumbnails import thumbnail


def test_answers_are_counted_by_true_class_and_class_said() -> None:
    told = [("a", "a"), ("a", "b"), ("a", "b"), ("b", "b"), ("c", "b")]
    found = confusion(told, ["a", "b", "c"])
    assert found.counts == ((1, 2, 0), (0, 1, 0), (0, 1, 0))
    assert found.shares()[0] == pytest.approx((1 / 3, 2 / 3, 0))
    assert most_confused(found) == (Mixup("c", "b", 1, 1.0), Mixup("a", "b", 2, pytest.approx(2 / 3)))
    assert most_confused(found, 1) == (Mixup("c", "b", 1, 1.0),)


def test_no_answers_are_no_mistakes_and_strangers_are_refused() -> None:
    empty = confusion([], ["a", "b"])
    assert empty.shares() == ((0, 0), (0, 0))
    assert most_confused(empty) == ()
    with pytest.raises(ValueError, match="not among a, b"):
        confusion([("a", "z")], ["a", "b"])


def test_reliability_puts_answers_into_ranges_with_certainty_in_the_last() -> None:
    bins = reliability([0.05, 0.5, 0.52, 1.0], [False, True, False, True])
    assert [b.count for b in bins] == [1, 0, 0, 0, 0, 2, 0, 0, 0, 1]
    assert bins[5].confidence == pytest.approx(0.51)
    assert (bins[5].accuracy, bins[9].accuracy, bins[1].accuracy) == (0.5, 1.0, 0.0)
    assert bins[9].confidence == 1.0


def test_the_calibration_error_is_the_gap_weighed_by_answers() -> None:
    bins = reliability([0.9, 0.9, 0.9, 0.6], [True, True, False, False])
    assert expected_calibration_error(bins) == pytest.approx(0.75 * abs(2 / 3 - 0.9) + 0.25 * 0.6)
    assert expected_calibration_error(reliability([0.0, 1.0], [False, True])) == 0
    assert expected_calibration_error(reliability([], [])) is None


def test_honest_probabilities_have_next_to_no_error_and_bold_ones_have() -> None:
    chance = np.random.default_rng(0)
    honest = chance.uniform(0, 1, 20_000)
    right = (chance.uniform(0, 1, 20_000) < honest).tolist()
    error, bold = (
        expected_calibration_error(reliability(sure.tolist(), right)) for sure in (honest, np.sqrt(honest))
    )
    assert error is not None
    assert bold is not None
    assert error < 0.015
    assert bold > 0.1


def test_what_is_no_probability_is_refused() -> None:
    with pytest.raises(ValueError, match=r"1\.5 is no probability"):
        reliability([1.5], [True])
    with pytest.raises(ValueError, match="2 probabilities and 1 answers"):
        reliability([0.5, 0.5], [True])


def test_mistakes_are_gathered_by_file_the_worst_first() -> None:
    told = [
        Answer("a/1", "a", "b", 0.8, 0.5),
        Answer("a/1", "a", "b", 0.6, 0.5),
        Answer("a/1", "a", "a", 0.9, 0.5),
        Answer("a/2", "a", "c", 0.9, 0.5),
        Answer("b/1", "b", "b", 0.9, 0.5),
    ]
    worst, next_one = mistakes(told, 5)
    assert worst == Mistake("a/2", "a", "c", 0.9, 1, 1)
    assert next_one == Mistake("a/1", "a", "b", pytest.approx(0.7), 2, 3)
    assert mistakes(told, 1) == (worst,)


def test_a_line_without_answers_is_named() -> None:
    score = Score(
        method="ncc",
        domain="birds",
        split="test",
        index=3,
        accuracy=0.5,
        seconds=0.1,
        way=2,
        support=2,
        queries=2,
        seed=0,
        protocol="varying",
        oracle=False,
        seen=None,
    )
    with pytest.raises(DataError, match="ncc on birds task 3: the line has no answers"):
        answers_of(score)


def test_a_thumbnail_is_a_small_jpeg_of_the_same_proportions() -> None:
    pixels = np.zeros((300, 150, 3), np.uint8)
    pixels[..., 0] = 255
    head, _, body = thumbnail(pixels, 100).partition(",")
    assert head == "data:image/jpeg;base64"
    with Image.open(io.BytesIO(base64.b64decode(body))) as picture:
        assert picture.size == (50, 100)
        red, green, _ = np.asarray(picture)[50, 25].tolist()
    assert red > 240
    assert green < 15
    assert Image.open(io.BytesIO(base64.b64decode(thumbnail(pixels[:1, :1]).partition(",")[2]))).size == (
        1,
        1,
    )
