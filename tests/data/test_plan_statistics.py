"""The sampler on the ten official specs: totals, nodes of the hierarchy, published statistics."""

import math
from statistics import mean, pstdev

import pytest

from fewshift.data.official import WITH_SPEC, official_spec
from fewshift.data.plan import choices, choose_classes, draw_shots, plans, query_count
from fewshift.data.protocol import FIVE_SHOT, ONE_SHOT, VARYING, Protocol
from fewshift.data.random import keyed_stream
from fewshift.data.spec import Spec, flat_spec
from fewshift.types import SPLITS, Split

MNIST = (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009)


def spec_of(name: str) -> Spec:
    if name == "mnist":
        return _one_split("mnist", MNIST)
    if name.startswith("cifar"):
        ways = int(name[5:])
        return _one_split(name, (10_000 // ways,) * ways)
    spec = official_spec(name)
    assert spec is not None
    return spec


def _one_split(name: str, images: tuple[int, ...]) -> Spec:
    return flat_spec(name, tuple(f"class {i}" for i in range(len(images))), images, {"test": len(images)})


# ---- the specs the protocol is defined on ------------------------------------------------------------------


def test_official_classes_in_all() -> None:
    splits = [[len(spec_of(name).splits[s]) for name in WITH_SPEC] for s in SPLITS]
    assert [sum(counts) for counts in splits] == [3144, 598, 1192]


@pytest.mark.parametrize(
    ("split", "inner", "kept", "above_max_way"),
    [("train", 299, 113, 16), ("valid", 42, 18, 4), ("test", 50, 15, 1)],
)
def test_nodes_of_the_hierarchy(split: Split, inner: int, kept: int, above_max_way: int) -> None:
    spec = spec_of("ilsvrc_2012")
    groups = choices(spec, split, VARYING).groups
    assert (len(spec.groups[split]), len(groups)) == (inner, kept)
    assert sum(len(group) > 50 for group in groups) == above_max_way
    assert set().union(*groups) == set(spec.splits[split])
    assert all(list(group) == sorted(group) for group in groups)


def test_392_is_the_smallest_span_that_reaches_every_leaf() -> None:
    groups = choices(spec_of("ilsvrc_2012"), "train", Protocol(max_span=391)).groups
    assert len(set().union(*groups)) == 708


def test_alphabets() -> None:
    spec = spec_of("omniglot")
    for split, count in zip(SPLITS, (25, 5, 20), strict=True):
        groups = choices(spec, split, VARYING).groups
        assert len(groups) == count
        assert sorted(c for group in groups for c in group) == list(spec.splits[split])


# ---- statistics of many tasks ------------------------------------------------------------------------------

STATISTICS = {  # mean way, least, most; mean support, its deviation; mean shots of a task; query
    "ilsvrc_2012": (14.8, 6, 50, 377, 155, 33.7, 10),
    "omniglot": (18.9, 5, 47, 91, 71, 4.8, 10),
    "aircraft": (10.0, 5, 15, 339, 162, 35.5, 10),
    "cu_birds": (17.5, 5, 30, 314, 166, 19.4, 10),
    "dtd": (6.0, 5, 7, 283, 153, 47.4, 10),
    "quickdraw": (27.6, 5, 50, 424, 126, 20.4, 10),
    "fungi": (27.4, 5, 50, 361, 160, 15.7, 4.05),
    "vgg_flower": (10.6, 5, 16, 292, 164, 28.6, 10),
    "traffic_sign": (24.0, 5, 43, 418, 132, 22.3, 10),
    "mscoco": (22.5, 5, 40, 416, 134, 23.3, 10),
    "mnist": (7.5, 5, 10, 323, 164, 44.1, 10),
    "cifar10": (7.5, 5, 10, 323, 164, 44.1, 10),
    "cifar100": (27.5, 5, 50, 417, 130, 19.8, 10),
}
TRAIN_MEANS = {  # way, support
    "ilsvrc_2012": (18.8, 373),
    "omniglot": (19.9, 96),
    "aircraft": (27.5, 416),
    "cu_birds": (27.5, 361),
    "dtd": (19.0, 407),
    "quickdraw": (27.6, 423),
    "fungi": (27.5, 360),
    "vgg_flower": (27.6, 385),
}


def sizes(spec: Spec, split: Split, protocol: Protocol, tasks: int) -> list[tuple[list[int], int]]:
    """Shots and query count of many tasks, without drawing images."""
    among = choices(spec, split, protocol)
    drawn = []
    for index in range(tasks):
        stream = keyed_stream("sizes", spec.name, split, index)
        images = [spec.images_per_class[c] for c in choose_classes(among, stream)]
        query = query_count(images, protocol)
        drawn.append((draw_shots(images, query, protocol, stream), query))
    return drawn


@pytest.mark.parametrize("name", STATISTICS)
def test_statistics_of_the_test_split(name: str) -> None:
    way, least, most, support, deviation, shot, query = STATISTICS[name]
    tasks = 2_000
    drawn = sizes(spec_of(name), "test", VARYING, tasks)
    ways, totals = [len(k) for k, _ in drawn], [sum(k) for k, _ in drawn]
    # Four standard errors and the rounding of the published figure.
    assert mean(ways) == pytest.approx(way, abs=4 * pstdev(ways) / math.sqrt(tasks) + 0.05)
    assert mean(totals) == pytest.approx(support, abs=4 * deviation / math.sqrt(tasks) + 0.5)
    assert pstdev(totals) == pytest.approx(deviation, rel=0.06)
    per_class = [mean(k) for k, _ in drawn]
    assert mean(per_class) == pytest.approx(shot, abs=4 * pstdev(per_class) / math.sqrt(tasks) + 0.05)
    assert mean(q for _, q in drawn) == pytest.approx(query, rel=0.02)
    assert least <= min(ways) <= least + 1
    assert most - 1 <= max(ways) <= most
    assert max(totals) <= 499
    assert min(min(k) for k, _ in drawn) >= 1


@pytest.mark.parametrize("name", TRAIN_MEANS)
def test_statistics_of_the_train_split(name: str) -> None:
    way, support = TRAIN_MEANS[name]
    drawn = sizes(spec_of(name), "train", VARYING, 1_000)
    ways, totals = [len(k) for k, _ in drawn], [sum(k) for k, _ in drawn]
    assert mean(ways) == pytest.approx(way, abs=4 * pstdev(ways) / math.sqrt(1_000) + 0.05)
    assert mean(totals) == pytest.approx(support, abs=4 * pstdev(totals) / math.sqrt(1_000) + 0.5)
    assert max(totals) <= 499


def test_five_shot_on_fungi() -> None:
    drawn = sizes(spec_of("fungi"), "test", FIVE_SHOT, 1_000)
    assert {k for shot, _ in drawn for k in shot} == {5}
    assert min(q for _, q in drawn) == 1  # classes of six images
    assert mean(q for _, q in drawn) == pytest.approx(3.3, abs=0.15)
    assert max(sum(k) for k, _ in drawn) == 250


@pytest.mark.parametrize("name", ["ilsvrc_2012", "omniglot", "fungi", "quickdraw"])
def test_one_shot_keeps_groups_and_the_query_rule(name: str) -> None:
    spec = spec_of(name)
    groups = [set(group.class_ids) for group in spec.groups.get("test", ())]
    seen = set()
    for plan in plans(spec, "test", ONE_SHOT, 0, range(300)):
        assert plan.shots == (1,) * 5
        images = [spec.images_per_class[c] for c in plan.class_ids]
        assert {len(q) for q in plan.query} == {min(10, min(images) // 2)}
        assert not groups or any(group.issuperset(plan.class_ids) for group in groups)
        seen.add(len(plan.query[0]))
    assert min(seen) == (3 if name == "fungi" else 10)
