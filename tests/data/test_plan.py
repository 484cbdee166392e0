"""The sampler: formulas derived again, addresses that never change, and what a domain can lack."""

import hashlib
import json
import math
import random
import time
from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fewshift.data.official import official_spec
from fewshift.data.plan import (
    TaskPlan,
    choices,
    draw_shots,
    plan_task,
    plans,
    query_count,
    shots,
    support_size,
)
from fewshift.data.protocol import FIVE_SHOT, ONE_SHOT, STANDARDS, VARYING, Protocol, free
from fewshift.data.random import keyed_stream
from fewshift.data.spec import Group, Spec, flat_spec
from fewshift.errors import DataError
from fewshift.types import Split


def official(name: str) -> Spec:
    spec = official_spec(name)
    assert spec is not None
    return spec


def one_split(name: str, images: Iterable[int]) -> Spec:
    images = tuple(images)
    return flat_spec(name, tuple(f"class {i}" for i in range(len(images))), images, {"test": len(images)})


# ---- formulas ----------------------------------------------------------------------------------------------


def reference(images: list[int], beta: float, log_weights: list[float]) -> tuple[list[int], int]:
    """The standard setting written again from the protocol, with the platform's own exp."""
    query = min(10, *(n // 2 for n in images))
    remaining = [n - query for n in images]
    size = 0
    for r in remaining:
        size += int(beta * (r if r < 100 else 100) + 1)
    if size > 500:
        size = 500
    weights = [n * math.exp(a) for n, a in zip(images, log_weights, strict=True)]
    shares = [w / sum(weights) for w in weights]
    drawn = [1 + int(p * (size - len(images))) for p in shares]
    return [r if k > r else k for k, r in zip(drawn, remaining, strict=True)], query


def test_shots_and_queries_follow_the_formulas() -> None:
    chance = random.Random(5)
    differing = 0
    for _ in range(5_000):
        top = chance.choice([4, 30, 200, 2_000, 300_000])
        images = [chance.randint(2, top) for _ in range(chance.randint(5, 50))]
        beta = chance.random()
        log_weights = [chance.uniform(math.log(0.5), math.log(2)) for _ in images]
        query = query_count(images, VARYING)
        size = support_size(images, query, beta, VARYING)
        found = shots(images, query, size, log_weights)
        assert (found, query) == reference(images, beta, log_weights)
        assert all(1 <= k <= n - query for k, n in zip(found, images, strict=True))
        assert sum(found) <= size <= 500
        differing += len(set(found)) > 1
    assert differing > 3_000


@given(
    st.lists(st.integers(7, 400), min_size=2, max_size=60),
    st.integers(1, 6),
    st.floats(0, 1, exclude_max=True),
)
@settings(max_examples=200, deadline=None)
def test_fixed_shots_and_queries(images: list[int], fixed: int, beta: float) -> None:
    stream = keyed_stream(0)
    five = Protocol(shot=fixed)
    assert draw_shots(images, query_count(images, five), five, stream) == [fixed] * len(images)
    assert query_count(images, five) == min([10] + [n - fixed for n in images])
    asked = Protocol(query=fixed)
    assert query_count(images, asked) == fixed
    found = draw_shots(images, fixed, asked, stream)
    assert all(1 <= k <= n - fixed for k, n in zip(found, images, strict=True))


def test_the_draw_order_is_classes_beta_weights_images() -> None:
    spec = one_split("order", [30] * 8)
    among = choices(spec, "test", VARYING)
    for index in range(20):
        stream = keyed_stream("task", 3, "order", "test", index)
        assert stream.below(1) == 0  # the only group
        way = 5 + stream.below(4)
        class_ids = stream.sample(8, way)
        (beta,) = stream.uniforms(1)
        log_weights = [math.log(0.5) + u * (math.log(2) - math.log(0.5)) for u in stream.uniforms(way)]
        counts, query = reference([30] * way, beta, log_weights)
        images = [stream.sample(30, k + query) for k in counts]
        assert plan_task(among, 3, index) == TaskPlan(
            plan_task(among, 3, index).address,
            "varying",
            tuple(class_ids),
            tuple(tuple(chosen[:k]) for chosen, k in zip(images, counts, strict=True)),
            tuple(tuple(chosen[k:]) for chosen, k in zip(images, counts, strict=True)),
        )


@pytest.mark.parametrize("protocol", [*STANDARDS.values(), free(7, 2, 4), free(shot=3, query=3)])
@pytest.mark.parametrize("name", ["ilsvrc_2012", "omniglot", "fungi"])
def test_every_plan_is_a_task(name: str, protocol: Protocol) -> None:
    spec = official(name)
    for plan in plans(spec, "valid", protocol, 11, range(40)):
        assert len(set(plan.class_ids)) == plan.way == len(plan.support) == len(plan.query)
        assert set(plan.class_ids) <= set(spec.splits["valid"])
        assert len({len(q) for q in plan.query}) == 1
        for c, support, query in zip(plan.class_ids, plan.support, plan.query, strict=True):
            assert support
            assert query
            assert len({*support, *query}) == len(support) + len(query)
            assert {*support, *query} <= set(range(spec.images_per_class[c]))
        if protocol.way:
            assert (plan.way, plan.shots) == (7, (2,) * 7)


def test_classes_and_images_are_drawn_evenly() -> None:
    spec = one_split("even", [12] * 10)
    classes: Counter[int] = Counter()
    support: Counter[int] = Counter()
    query: Counter[int] = Counter()
    for plan in plans(spec, "test", free(5, 3, 3), 0, range(4_000)):
        classes.update(plan.class_ids)
        support.update(i for images in plan.support for i in images)
        query.update(i for images in plan.query for i in images)
    assert all(abs(n / 2_000 - 1) < 0.08 for n in classes.values())
    assert len(classes) == 10
    for counts in (support, query):
        assert len(counts) == 12
        assert all(abs(n / 5_000 - 1) < 0.06 for n in counts.values())


def test_alphabets_are_drawn_whatever_their_size() -> None:
    groups = (Group("small", tuple(range(6))), Group("large", tuple(range(6, 66))), Group("tiny", (66, 67)))
    splits: dict[Split, range] = {"train": range(0), "valid": range(0), "test": range(68)}
    spec = Spec("letters", tuple(map(str, range(68))), (20,) * 68, splits, "bilevel", {"test": groups})
    planned = list(plans(spec, "test", VARYING, 0, range(600)))
    small = sum(set(plan.class_ids) <= set(range(6)) for plan in planned)
    assert small + sum(set(plan.class_ids) <= set(range(6, 66)) for plan in planned) == 600
    assert 240 < small < 360
    assert max(plan.way for plan in planned) == 50


# ---- addresses ---------------------------------------------------------------------------------------------

GOLDEN = {  # changing one of these changes the tasks that published results were made on
    ("ilsvrc_2012", "varying"): "09f54b1b773ce3e8",
    ("omniglot", "varying"): "810dc6d2d6aa18bb",
    ("quickdraw", "varying"): "c60ba0d7c6808724",
    ("fungi", "five-shot"): "4ef72379cfd76dd9",
    ("ilsvrc_2012", "one-shot"): "3df38d5ba4bc5c05",
    ("fungi", "free:way=5,shot=2,query=3,grouped=False"): "79a5f7a59d550b9c",
}


@pytest.mark.parametrize(("name", "protocol"), GOLDEN)
def test_tasks_at_an_address_never_change(name: str, protocol: str) -> None:
    setting = {**STANDARDS, free(5, 2, 3).name: free(5, 2, 3)}[protocol]
    planned = plans(official(name), "test", setting, 2025, range(20))
    content = json.dumps([[p.class_ids, p.support, p.query] for p in planned])
    assert hashlib.sha256(content.encode()).hexdigest()[:16] == GOLDEN[name, protocol]


def test_a_task_does_not_depend_on_the_others() -> None:
    spec = official("omniglot")
    in_order = list(plans(spec, "train", VARYING, 5, range(30)))
    backwards = list(plans(spec, "train", VARYING, 5, reversed(range(30))))
    assert in_order == backwards[::-1]
    assert next(plans(spec, "train", VARYING, 5, [17])) == in_order[17]
    assert len({plan.support for plan in in_order}) == 30
    other_seed = list(plans(spec, "train", VARYING, 6, range(30)))
    assert not {plan.support for plan in in_order} & {plan.support for plan in other_seed}


# ---- what a domain can lack --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "protocol", "said"),
    [
        (0, VARYING, r"has 0 images and a task needs 2 \(1 support, 1 query\)"),
        (1, VARYING, r"has 1 image and a task needs 2 \(1 support, 1 query\)"),
        (1, ONE_SHOT, r"has 1 image and a task needs 2 \(1 support, 1 query\)"),
        (5, FIVE_SHOT, r"has 5 images and a task needs 6 \(5 support, 1 query\)"),
        (19, free(5, 5, 15), r"has 19 images and a task needs 20 \(5 support, 15 query\)"),
        (3, free(query=3), r"has 3 images and a task needs 4 \(1 support, 3 query\)"),
    ],
)
def test_small_classes_are_named(count: int, protocol: Protocol, said: str) -> None:
    spec = one_split("shells", [40] * 6 + [count])
    with pytest.raises(DataError, match=rf"shells, test split: class 6 \(class 6\) {said}: add images"):
        choices(spec, "test", protocol)
    without = Protocol(**{**protocol.to_dict(), "min_images": protocol.images_needed})
    used = {c for plan in plans(spec, "test", without, 0, range(100)) for c in plan.class_ids}
    assert used == set(range(6))


def test_splits_without_enough_classes_are_refused() -> None:
    with pytest.raises(
        DataError, match="coins, test split: a task needs 5 classes and the split has 4: use ano"
    ):
        choices(one_split("coins", [20] * 4), "test", VARYING)
    with pytest.raises(DataError, match="coins, train split: a task needs 5 classes and the split has 0"):
        choices(one_split("coins", [20] * 9), "train", VARYING)
    with pytest.raises(DataError, match="a task needs 10 classes and the split has 9"):
        choices(one_split("coins", [20] * 9), "test", free(10, 1, 1))
    with pytest.raises(DataError, match="needs 5 classes and the split has 4 with 30 images or more"):
        choices(one_split("coins", [20] * 9 + [30] * 4), "test", Protocol(min_images=30))


def test_a_split_that_does_not_exist_is_refused() -> None:
    spec = flat_spec("zoo", ("a", "b"), (9, 9), {"train": 0, "valid": 0, "test": 2})
    with pytest.raises(DataError, match="zoo: there is no split 'tset': choose one of train, valid, test"):
        choices(spec, "tset", ONE_SHOT)  # type: ignore[arg-type]


def test_groups_that_are_all_too_small_are_refused() -> None:
    groups = (Group("a", (0, 1, 2)), Group("b", (3, 4, 5)))
    splits: dict[Split, range] = {"train": range(0), "valid": range(0), "test": range(6)}
    spec = Spec("runes", tuple("abcdef"), (20,) * 6, splits, "bilevel", {"test": groups})
    with pytest.raises(
        DataError, match="runes, test split: a task needs 5 classes of one group and none of its 2"
    ):
        choices(spec, "test", VARYING)
    assert choices(spec, "test", Protocol(grouped=False)).groups == ((0, 1, 2, 3, 4, 5),)


def test_negative_numbers_name_no_task() -> None:
    with pytest.raises(ValueError, match="numbered from 0"):
        plan_task(choices(one_split("coins", [20] * 5), "test", VARYING), 0, -1)


def test_planning_takes_far_less_than_reading() -> None:
    among = choices(official("quickdraw"), "test", VARYING)  # classes of 100,000 images and more
    best = math.inf
    for _ in range(5):
        begin = time.process_time()
        for index in range(50):
            plan_task(among, 0, index)
        best = min(best, (time.process_time() - begin) / 50)
    assert best < 0.003  # about 0.4 ms on one core of 2024; a permutation of every class would take 100 ms
