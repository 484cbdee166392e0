"""The last map on features equals the definition, step by step."""

import copy
import pickle
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from fewshift.core.descent import descend
from fewshift.core.losses import inner_objective
from fewshift.core.updates import Adadelta, Preconditioned, Update
from fewshift.errors import FewshiftError
from fewshift.nets import last_map
from fewshift.nets.adapters import adapters_at
from fewshift.nets.any_module import backbone_from
from fewshift.nets.backbone import Backbone, freeze
from fewshift.nets.engine import PlainEngine
from fewshift.nets.last_map import (
    LastMapEngine,
    Remembered,
    below_last,
    descend_on_features,
    last_map_of,
)
from fewshift.nets.lite0 import Lite0
from fewshift.nets.small_space import closed_space, space_pays
from fewshift.types import Labelled, Task

MATRIX = torch.eye(8, dtype=torch.float64) + 0.3 * torch.ones(8, 8, dtype=torch.float64)
UPDATES = {
    "preconditioned": Preconditioned({"last": MATRIX}, {"last": 0.7}),
    "plain": Preconditioned(None, {"last": 0.7}),
    "adadelta": Adadelta({"last": 0.5}),
}


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    torch.manual_seed(1)
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return backbone_from(net.double())


@pytest.mark.parametrize("name", UPDATES)
def test_it_equals_the_plain_engine(name: str, backbone: Backbone, make_task: Callable[..., Task]) -> None:
    task, update = make_task(images=10, size=9), UPDATES[name]
    start = {"last": torch.eye(8, dtype=torch.float64) + 0.05}
    quick, plain = LastMapEngine(backbone), PlainEngine(backbone)
    found, wanted = (engine.adapt(task, start, update, 4) for engine in (quick, plain))
    torch.testing.assert_close(found.losses, wanted.losses, rtol=0, atol=1e-12)
    torch.testing.assert_close(found.params["last"], wanted.params["last"], rtol=0, atol=1e-12)
    images = torch.randn(3, 3, 9, 9, dtype=torch.float64)
    torch.testing.assert_close(
        quick.embed(found.params, images), plain.embed(wanted.params, images), rtol=0, atol=1e-12
    )


def test_the_weights_of_a_backbone_count_not_those_in_its_module() -> None:
    """Several backbones may share one module, into which each one's weights are put for a call."""
    torch.manual_seed(0)
    net = Lite0().double()
    first = freeze(net, adapters_at(net, ()))
    other = {name: 1.05 * t if "depthwise" in name else t for name, t in first.frozen.items()}
    second = replace(first, frozen=other)
    images = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    for backbone in (first, second):
        found, wanted = (e(backbone).embed(backbone.init(), images) for e in (LastMapEngine, PlainEngine))
        torch.testing.assert_close(found / wanted.norm(), wanted / wanted.norm())
    apart = below_last(first, images) - below_last(second, images)
    assert apart.norm() > 0.01 * below_last(first, images).norm()


def test_the_last_map_alone_reads_features(backbone: Backbone, make_task: Callable[..., Task]) -> None:
    task = make_task(images=10, size=9)
    features = below_last(backbone, task.support.images)
    on_features = Task(Labelled(features, task.support.labels), task.way)
    update: Update[None] = UPDATES["preconditioned"]
    wanted = PlainEngine(backbone).adapt(task, backbone.init(), update, 3).params["last"]
    alone = last_map_of(backbone)
    for engine in (PlainEngine(alone), LastMapEngine(alone)):
        found = engine.adapt(on_features, alone.init(), update, 3).params["last"]
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)


def test_features_are_remembered_while_the_images_stay_as_they_are() -> None:
    calls: list[int] = []

    def count(images: Tensor) -> Tensor:
        calls.append(len(images))
        return images.sum(dim=1)

    remembered, images = Remembered(count), torch.ones(2, 3)
    assert remembered(images) is remembered(images)
    images.add_(1)
    assert torch.equal(remembered(images), torch.tensor([6.0, 6.0]))
    remembered(torch.ones(4, 3))
    remembered(images)
    assert calls == [2, 2, 4, 2]


@pytest.mark.parametrize("alone", [False, True], ids=["network", "last map"])
@pytest.mark.parametrize("another", [copy.deepcopy, lambda engine: pickle.loads(pickle.dumps(engine))])
def test_an_engine_that_was_used_can_be_copied_and_sent_to_a_process(
    another: Callable[[LastMapEngine], LastMapEngine], alone: bool, backbone: Backbone
) -> None:
    images = torch.randn(3, 8 if alone else 3, *(() if alone else (9, 9)), dtype=torch.float64)
    engine = LastMapEngine(last_map_of(backbone) if alone else backbone)
    wanted = engine.embed({}, images)
    found = another(engine)
    assert found.backbone is not engine.backbone
    assert torch.equal(found.embed({}, images), wanted)


def test_parameters_of_another_layer_are_not_taken_for_the_last_map(
    backbone: Backbone, make_task: Callable[..., Task]
) -> None:
    start, update = {"nowhere": backbone.init()["last"]}, Preconditioned(None, {"nowhere": 0.1})
    for params in (start, start | backbone.init()):
        with pytest.raises(FewshiftError, match="no site nowhere"):
            LastMapEngine(backbone).adapt(make_task(), params, update, 1)


FEW = 0.3 * torch.randn(3, 64, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
MANY = torch.randn(64, 64, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
MATRICES = {  # and the dimensions of the space that 5 images stay in; None: it is not looked for
    "plain": (None, 5),
    "low rank": (1.3 * torch.eye(64, dtype=torch.float64) + FEW.mT @ FEW, 5 + 16),
    "full rank": (torch.eye(64, dtype=torch.float64) + 0.05 * MANY.mT @ MANY, None),
}


@pytest.mark.parametrize("name", MATRICES)
def test_descent_in_a_small_space_equals_descent_in_all_of_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix, wanted = MATRICES[name]
    chance = torch.Generator().manual_seed(5)
    features = torch.randn(5, 64, generator=chance, dtype=torch.float64)
    start = torch.eye(64, dtype=torch.float64) + 0.1 * MANY
    basis = closed_space(features @ start.mT, matrix)
    assert (None if basis is None else basis.shape[1]) == wanted
    monkeypatch.setattr(last_map, "space_pays", lambda *_: True)
    task = Task(Labelled(features, torch.tensor([0, 0, 1, 1, 1])), 2)
    update = Preconditioned(None if matrix is None else {"last": matrix}, {"last": 0.8})
    found = descend_on_features(task, "last", start, update, 6)
    plain = descend(inner_objective(lambda p, x: x @ p["last"].mT, task), {"last": start}, update, 6)
    torch.testing.assert_close(found.losses, plain.losses, rtol=0, atol=1e-12)
    torch.testing.assert_close(found.params["last"], plain.params["last"], rtol=0, atol=1e-12)
    assert float(found.losses[-1]) < float(found.losses[0])


def test_too_many_images_for_a_small_space() -> None:
    assert closed_space(torch.randn(49, 64), None) is None
    assert closed_space(torch.randn(48, 64), None) is not None


def test_the_space_is_looked_for_where_it_pays() -> None:
    matrix = torch.empty(1280, 1280, device="meta")
    for count, steps, pays in ((25, 10, False), (75, 40, True), (250, 40, True), (900, 40, False)):
        assert space_pays(torch.empty(count, 1280, device="meta"), matrix, steps) is pays
    assert space_pays(torch.empty(5, 1280, device="meta"), None, 5)
