"""Halved rates where a descent overshoots, and nothing else anywhere."""

from dataclasses import replace
from functools import partial
from math import inf, nan

import pytest
import torch
from small_kits import kit_with_starts

from fewshift.methods import METHODS
from fewshift.methods.gd import GradientDescent
from fewshift.methods.rates import BySeen, Pair
from fewshift.methods.steady import Steady, overshot
from fewshift.nets.engine import PlainEngine
from fewshift.nets.graph import GraphEngine
from fewshift.nets.kit import Kit
from fewshift.nets.together import Together
from fewshift.types import Adapted, Labelled, Task

DOMAINS = ("birds", "cars")


@pytest.fixture(scope="module")
def kit() -> Kit:
    rates = {"seen": [0.1, 0.1], "unseen": [0.1, 0.1]}
    return kit_with_starts(DOMAINS, info={"rates": {"gd": rates, "tsp_start": rates}})


@pytest.fixture(scope="module")
def task() -> Task:
    torch.manual_seed(2)
    return Task(Labelled(torch.randn(12, 3, 28, 28), torch.arange(12) % 3), way=3)


def descent(kit: Kit, rate: float) -> GradientDescent:
    return GradientDescent(PlainEngine(kit.backbone), BySeen(Pair(rate, rate), Pair(rate, rate)), steps=6)


def same(one: Adapted, other: Adapted, task: Task) -> bool:
    return torch.equal(one(task.support.images), other(task.support.images))


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ([1.0, 0.5, 0.1], False),
        ([1.0, 1.05, 0.1], False),
        ([1.0, 1.2, 0.1], True),
        ([1.0, nan, nan], True),
        ([nan, nan], True),
        ([1.0, inf, 0.2], True),
        ([0.0, 0.0], False),
        ([4e-5, 5e-5], False),  # perhaps 4.4e-5 and 4.6e-5
    ],
)
def test_a_loss_overshoots_above_its_start_wherever_it_ends(losses: list[float], expected: bool) -> None:
    assert overshot(losses) == expected


def test_a_descent_that_does_not_overshoot_stays_the_same(kit: Kit, task: Task) -> None:
    plain = descent(kit, 0.05)
    found = Steady(plain, "gd_steady").adapt(task)
    assert found.notes["halved"] == 0
    assert found.notes["rates"] == [0.05, 0.05]
    assert same(found, plain.adapt(task), task)


def test_a_descent_that_overshoots_is_the_one_at_lower_rates(kit: Kit, task: Task) -> None:
    rate = 16.0
    assert overshot(descent(kit, rate).adapt(task).notes["losses"])
    found = Steady(descent(kit, rate), "gd_steady").adapt(task)
    halved = found.notes["halved"]
    assert halved > 0
    assert not overshot(found.notes["losses"])
    assert found.notes["rates"] == [rate / 2**halved] * 2
    assert same(found, descent(kit, rate / 2**halved).adapt(task), task)
    assert overshot(descent(kit, 2 * rate / 2**halved).adapt(task).notes["losses"])


def test_halving_ends(kit: Kit, task: Task) -> None:
    found = Steady(descent(kit, 1e6), "gd_steady", halvings=2).adapt(task)
    assert found.notes["halved"] == 2
    assert found.notes["rates"] == [2.5e5, 2.5e5]


@pytest.mark.parametrize("name", ["gd", "tsp_start"])
def test_the_steady_form_of_a_tuned_method(kit: Kit, task: Task, name: str) -> None:
    steady = METHODS[f"{name}_steady"](kit, oracle=False)
    tuned = METHODS[f"{name}_tuned"](kit, oracle=False)
    assert isinstance(steady, Steady)
    assert steady.method.name == tuned.name
    found = steady.adapt(task)
    assert found.notes["halved"] == 0
    assert same(found, tuned.adapt(task), task)


def test_tasks_that_halve_and_tasks_that_do_not_can_share_an_engine(kit: Kit, task: Task) -> None:
    shared = Together(GraphEngine(kit.backbone, captured=False))
    method = Steady(replace(descent(kit, 16.0), engine=shared), "gd_steady")
    images = torch.ones_like(task.support.images)  # all alike: nothing to descend, nothing to overshoot
    easy = replace(task, support=replace(task.support, images=images))
    tasks = [task, easy, task]
    together = shared.each([partial(method.adapt, one) for one in tasks])
    assert method.engine is shared
    assert [adapted.notes["halved"] for adapted in together] == [
        method.adapt(one).notes["halved"] for one in tasks
    ]
    assert together[0].notes["halved"] > together[1].notes["halved"] == 0
