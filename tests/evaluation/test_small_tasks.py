"""Small tasks are scored together: the same scores in the same order; and precisions pass or fail a gate."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import nn

from fewshift.benchmarks import gate
from fewshift.errors import FewshiftError
from fewshift.evaluation.evaluate import Setting, evaluate, small_together
from fewshift.methods import fine_tune, gd, ncc, tsa
from fewshift.nets.any_module import backbone_from
from fewshift.nets.backbone import freeze
from fewshift.nets.engine import PlainEngine
from fewshift.nets.graph import GraphEngine
from fewshift.nets.kit import ImageSettings, Kit
from fewshift.nets.precision import Precision
from fewshift.nets.resnet import ResNet18
from fewshift.nets.together import Together
from fewshift.types import Address, Episode, Labelled, Task


@pytest.fixture(scope="module")
def kit() -> Kit:
    torch.manual_seed(0)
    net = ResNet18(width=2)
    with torch.no_grad():
        for _ in range(3):
            net(torch.randn(16, 3, 16, 16))
    return Kit(freeze(net), ImageSettings(16, "practical"))


def episodes(sizes: tuple[int, ...]) -> Iterator[Episode]:
    for index, size in enumerate(sizes):
        generator = torch.Generator().manual_seed(index)
        means = torch.randn(3, 3, 16, 16, generator=generator)

        def part(count: int, means: torch.Tensor = means, own: torch.Generator = generator) -> Labelled:
            labels = torch.arange(count) % 3
            return Labelled(means[labels] + torch.randn(count, 3, 16, 16, generator=own), labels)

        address = Address(0, "noise", "test", index)
        yield Episode(Task(part(size), 3, True), part(9), address, (0, 1, 2))


def test_small_neighbours_form_groups() -> None:
    groups = small_together(episodes((3, 6, 70, 5, 64, 65)))
    assert [[len(e.task.support.labels) for e in group] for group in groups] == [[3, 6], [70], [5, 64], [65]]


def test_scores_and_their_order_stay_the_same(kit: Kit) -> None:
    sizes = (3, 6, 70, 5, 9)
    alone = GraphEngine(kit.backbone, captured=False)
    shared = Together(GraphEngine(kit.backbone, captured=False))
    found = {}
    for engine in (PlainEngine(kit.backbone), alone, shared):
        methods = [replace(build(kit, engine, True), steps=2) for build in (tsa, gd)]
        together = engine if isinstance(engine, Together) else None
        scores = list(evaluate(methods, episodes(sizes), together=together))
        found[type(engine).__name__] = [(s.method, s.index, s.accuracy, s.support) for s in scores]
    assert found["PlainEngine"] == found["GraphEngine"] == found["Together"]
    assert len(found["Together"]) == 2 * len(sizes)
    tasks = {key[0].tasks for key in shared.engine.steps}  # type: ignore[attr-defined]
    assert tasks == {1, 2}  # two neighbours at a time, and the large one alone


def test_a_score_names_the_engine_that_ran(kit: Kit) -> None:
    graph = GraphEngine(kit.backbone, captured=False)
    methods = [replace(gd(kit, graph, True), steps=1), ncc(kit, graph), fine_tune(kit, graph)]
    scores = evaluate(methods, episodes((3,)), Setting(engines={"graph": "graph in tf32"}))
    assert [s.engine for s in scores] == ["graph in tf32", "plain", "graph in tf32"]


def test_the_gate_compares_the_same_tasks(kit: Kit) -> None:
    outcome = gate.run(kit, episodes((6, 9, 12)), "cpu", ("float16",), ("gd",), captured=False)
    (row,) = outcome["results"]
    assert outcome["tasks"] == 3
    assert row["passes"] == (abs(row["difference"]) <= gate.ALLOWED)
    assert row["accuracy"] == pytest.approx(row["float32"] + row["difference"], abs=2e-3)


def test_the_gate_of_a_cpu_compares_bfloat16(kit: Kit) -> None:
    outcome = gate.run(kit, episodes((6, 9, 12)), "cpu", ("bfloat16",), ("gd", "pa"))
    assert outcome["tasks"] == 3
    assert [(row["method"], row["precision"]) for row in outcome["results"]] == [
        ("gd", "bfloat16"),
        ("pa", "bfloat16"),
    ]


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_the_gate_asks_for_a_kit_that_has_precisions(precision: Precision) -> None:
    alone = Kit(backbone_from(nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 4)), size=16))
    sentence = "this kit has one precision here .*: give another --kit, one that adapts a ResNet-18"
    with pytest.raises(FewshiftError, match=sentence):
        gate.run(alone, episodes((6,)), "cpu", (precision,))


def test_the_gate_fails_where_accuracy_is_lost() -> None:
    row = gate.compared("tsp", "float16", [90.0, 80.0, 70.0], [90.0, 79.0, 70.0])
    assert row["difference"] == pytest.approx(-1 / 3, abs=1e-4)
    assert row["largest"] == 1.0
    assert not row["passes"]
    assert gate.compared("tsp", "tf32", [90.0, 80.0], [90.1, 79.95])["passes"]
