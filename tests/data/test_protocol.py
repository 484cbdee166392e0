"""The constants of a protocol check themselves and cannot go under a wrong name."""

import math
from dataclasses import FrozenInstanceError, replace

import pytest

from fewshift.data.protocol import FIVE_SHOT, ONE_SHOT, STANDARDS, VARYING, Protocol, free
from fewshift.errors import FewshiftError


def test_the_standard_has_the_published_constants() -> None:
    assert (VARYING.min_way, VARYING.max_way) == (5, 50)
    assert (VARYING.max_query, VARYING.max_support, VARYING.max_contribution) == (10, 500, 100)
    assert (VARYING.min_log_weight, VARYING.max_log_weight) == (math.log(0.5), math.log(2))
    assert (VARYING.max_span, VARYING.min_images, VARYING.grouped) == (392, 0, True)
    assert (VARYING.way, VARYING.shot, VARYING.query) == (None, None, None)


def test_names_follow_the_constants() -> None:
    assert {p.name: p for p in (VARYING, FIVE_SHOT, ONE_SHOT)} == dict(STANDARDS)
    assert replace(VARYING, max_support=400, max_way=40).name == "free:max_way=40,max_support=400"
    assert Protocol(shot=5).name == "five-shot"
    assert free(5, 5, 15).name == "free:way=5,shot=5,query=15,grouped=False"
    assert free() == VARYING
    assert free(shot=5) == FIVE_SHOT
    assert len({p.name for p in (VARYING, FIVE_SHOT, ONE_SHOT, free(5), free(5, 1), free(None, 1))}) == 6


def test_it_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        VARYING.max_way = 3  # type: ignore[misc]


@pytest.mark.parametrize("protocol", [VARYING, ONE_SHOT, free(20, None, 3), Protocol(min_images=4)])
def test_it_goes_through_a_dictionary(protocol: Protocol) -> None:
    assert Protocol.from_dict(protocol.to_dict()) == protocol


def test_foreign_constants_are_refused() -> None:
    with pytest.raises(FewshiftError, match=r'\["max_way", "most_ways"\] are missing or not known'):
        Protocol.from_dict(
            {("most_ways" if key == "max_way" else key): value for key, value in VARYING.to_dict().items()}
        )


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"min_way": 51}, "min_way 51 is above max_way 50"),
        ({"min_way": 1}, "two classes"),
        ({"way": 1, "grouped": False}, "two classes"),
        ({"max_query": 0}, "max_query is 0: give a whole number from 1"),
        ({"max_way": 5.0}, "max_way is 5.0"),
        ({"max_support": True}, "max_support is True"),
        ({"min_images": -1}, "min_images is -1: give a whole number from 0"),
        ({"shot": 0}, "shot is 0: give a whole number above 0, or nothing"),
        ({"query": "10"}, "query is '10'"),
        ({"grouped": 1}, "grouped is 1: give true or false"),
        ({"max_log_weight": math.inf}, "max_log_weight is inf: give a finite number"),
        ({"min_log_weight": 1.0}, "min_log_weight 1.0 is above"),
        ({"max_span": 4}, "max_span 4 is below min_way 5"),
        ({"way": 5}, "a fixed way of 5 cannot keep to alphabets"),
        ({"max_support": 49}, "max_support 49 is below the 50 classes"),
    ],
)
def test_wrong_constants_are_refused(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(FewshiftError, match=message):
        Protocol(**wrong)  # type: ignore[arg-type]
