"""Tuning by graphs against tuning as it is written down."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
import torch

from fewshift.core.descent import gradients
from fewshift.core.losses import inner_objective
from fewshift.core.updates import Adam
from fewshift.errors import FewshiftError
from fewshift.methods.pmf import varied_copies
from fewshift.methods.tuned import adam_at
from fewshift.nets.backbone import Backbone
from fewshift.nets.cell_loss import MAX_WAY
from fewshift.nets.engine import FoldedEngine, PlainEngine
from fewshift.nets.graph import GraphEngine
from fewshift.nets.graph_tuning import GraphTuning, tuning_like
from fewshift.nets.together import Together
from fewshift.nets.tuned_resnet import TunedResNet
from fewshift.nets.tuning import PlainTuning, Rule
from fewshift.nets.whole import every_weight, moving, norm_affine
from fewshift.types import Labelled, Task, TaskParams

Make = Callable[..., Backbone]
MakeTask = Callable[..., Task]
DEVICES = [
    "cpu",
    pytest.param(
        "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
    ),
]


def whole(backbone: Backbone) -> Backbone:
    return moving(backbone, every_weight(backbone.net))


def there(task: Task, device: str) -> Task:
    return replace(task, support=Labelled(task.support.images.to(device), task.support.labels.to(device)))


def adams(*rates: float) -> list[Rule]:
    return [adam_at(rate) for rate in rates]


def assert_equal(found: TaskParams, wanted: TaskParams, atol: float) -> None:
    assert list(found) == list(wanted)
    for site, value in wanted.items():
        torch.testing.assert_close(found[site], value, rtol=0, atol=atol, msg=lambda m, s=site: f"{s}: {m}")


@pytest.mark.parametrize("padding", [1, 2])
def test_folded_features_and_their_gradients_are_the_networks(
    make_backbone: Make, make_task: MakeTask, jitter: Callable[[TaskParams], TaskParams], padding: int
) -> None:
    backbone, task = whole(make_backbone(padding=padding)), make_task()
    params = jitter(backbone.init())
    net = TunedResNet(backbone, torch.float64)
    torch.testing.assert_close(net(params, task.support.images), backbone(params, task.support.images))
    loss, wanted = gradients(inner_objective(backbone, task), params)
    same, found = gradients(inner_objective(net, task), params)
    torch.testing.assert_close(same, loss)
    assert_equal(found, wanted, atol=1e-12)


def test_sixteen_bits_neither_lose_small_gradients_nor_overflow(
    make_backbone: Make, make_task: MakeTask
) -> None:
    """A loss a million times smaller or larger has gradients that much smaller or larger."""
    backbone, task = whole(make_backbone(width=16, dtype=torch.float32)), make_task(60, dtype=torch.float32)

    def found(dtype: torch.dtype, factor: float) -> TaskParams:
        loss = inner_objective(TunedResNet(backbone, dtype), task)
        return gradients(lambda params: factor * loss(params), backbone.init())[1]

    once = found(torch.float16, 1.0)
    for factor in (2.0**-20, 2.0**20):
        scaled = {site: value / factor for site, value in found(torch.float16, factor).items()}
        assert_equal(scaled, once, atol=1e-6)
    wide = found(torch.float32, 1.0)
    rounding = sum((once[site] - value).square().sum() for site, value in wide.items())
    assert rounding < 0.1**2 * sum(value.square().sum() for value in wide.values())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("sites", [every_weight, norm_affine])
@pytest.mark.parametrize("varied", [False, True])
def test_graphs_tune_as_it_is_written(
    make_backbone: Make,
    make_task: MakeTask,
    device: str,
    sites: Callable[[torch.nn.Module], tuple[str, ...]],
    varied: bool,
) -> None:
    """Two sizes that are padded, two of one size on the same buffers, two rates on one task."""
    backbone = make_backbone(width=4).to(device)
    backbone = moving(backbone, sites(backbone.net))
    plain, graph = PlainTuning(backbone), GraphTuning(backbone, captured=device == "cuda")
    for images, way in ((12, 3), (13, 4), (21, 5), (12, 3)):
        task = there(make_task(images, way=way), device)
        copies = varied_copies(task, 2) if varied else None
        updates = adams(1e-3, 1e-2)
        for found, wanted in zip(
            graph.tune(task, updates, 3, copies), plain.tune(task, updates, 3, copies), strict=True
        ):
            torch.testing.assert_close(found.losses, wanted.losses, rtol=0, atol=1e-9)
            assert_equal(found.params, wanted.params, atol=1e-7)
            features = graph.embed(found.params, task.support.images)
            torch.testing.assert_close(
                features, plain.embed(found.params, task.support.images), rtol=0, atol=1e-9
            )
    assert len(graph.passes) == 2


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("precision", ["float32", "tf32", "float16"])
def test_on_a_gpu_every_precision_goes_the_same_way(
    make_backbone: Make, make_task: MakeTask, precision: str
) -> None:
    backbone = whole(make_backbone(width=16, dtype=torch.float32).to("cuda"))
    task = there(make_task(60, dtype=torch.float32), "cuda")
    (found,) = GraphTuning(backbone, precision).tune(task, adams(1e-3), 20)  # type: ignore[arg-type]
    (wanted,) = PlainTuning(backbone).tune(task, adams(1e-3), 20)
    assert found.losses[-1] < 0.8 * found.losses[0]
    torch.testing.assert_close(found.losses, wanted.losses, rtol=0.05, atol=0.02)


def test_what_leaves_the_range_of_sixteen_bits_is_done_again_without_them(
    make_backbone: Make, make_task: MakeTask
) -> None:
    backbone = make_backbone(width=4, dtype=torch.float32)
    loud = {**backbone.frozen, "bn1.weight": 1e7 * backbone.frozen["bn1.weight"]}
    backbone, task = whole(replace(backbone, frozen=loud)), make_task(dtype=torch.float32)
    plain, graph = PlainTuning(backbone), GraphTuning(backbone, "float16", captured=False)
    assert not graph.net(backbone.init(), task.support.images).isfinite().all()
    (found,), (wanted,) = (tuning.tune(task, adams(1e-3), 2) for tuning in (graph, plain))
    torch.testing.assert_close(found.losses, wanted.losses, rtol=1e-3, atol=1e-3)
    features = graph.embed(found.params, task.support.images)
    assert features.isfinite().all()
    torch.testing.assert_close(features, plain.embed(found.params, task.support.images), rtol=1e-3, atol=1e-3)


def test_what_is_tuned_is_the_callers_own(make_backbone: Make, make_task: MakeTask) -> None:
    """The buffers serve the next task; what came of the last one must not change with them."""
    backbone = whole(make_backbone())
    graph = GraphTuning(backbone, captured=False)
    (first,) = graph.tune(make_task(), adams(1e-2), 2)
    kept = {site: value.clone() for site, value in first.params.items()}
    graph.tune(make_task(11, way=4), adams(1e-2), 2)
    assert_equal(first.params, kept, atol=0)


@pytest.mark.parametrize(("sites", "tensors"), [(every_weight, 3), (norm_affine, 2)])
def test_a_rule_sees_a_few_tensors_and_not_sixty(
    make_backbone: Make,
    make_task: MakeTask,
    sites: Callable[[torch.nn.Module], tuple[str, ...]],
    tensors: int,
) -> None:
    """Each costs a step some ten small operations, which take longer than those on the images."""
    backbone = make_backbone()
    seen: list[str] = []

    def rule(names: Iterable[str]) -> Adam:
        seen.extend(names)
        return Adam(dict.fromkeys(seen, 1e-2))

    GraphTuning(moving(backbone, sites(backbone.net)), captured=False).tune(make_task(), [rule], 1)
    assert len(seen) == tensors


def test_more_ways_than_a_graph_has_are_tuned_plainly(make_backbone: Make) -> None:
    backbone = whole(make_backbone())
    way = MAX_WAY + 1
    task = Task(Labelled(torch.randn(way, 3, 20, 20, dtype=torch.float64), torch.arange(way)), way)
    (found,) = GraphTuning(backbone, captured=False).tune(task, adams(1e-3), 1)
    (wanted,) = PlainTuning(backbone).tune(task, adams(1e-3), 1)
    assert_equal(found.params, wanted.params, atol=0)


def test_where_nothing_is_to_be_tuned_no_graph_is_made(make_backbone: Make, make_task: MakeTask) -> None:
    graph = GraphTuning(whole(make_backbone()), captured=False)
    assert graph.tune(make_task(), [], 3) == []
    assert not graph.passes
    (still,) = graph.tune(make_task(), adams(1e-2), 0)
    assert_equal(still.params, graph.backbone.init(), atol=0)


def test_a_changed_copy_has_buffers_of_its_own(make_backbone: Make, make_task: MakeTask) -> None:
    first, second = whole(make_backbone(padding=1)), whole(make_backbone(padding=2))
    graph = GraphTuning(first, captured=False)
    graph.tune(make_task(), adams(1e-2), 1)
    (found,) = replace(graph, backbone=second).tune(make_task(), adams(1e-2), 2)
    (wanted,) = PlainTuning(second).tune(make_task(), adams(1e-2), 2)
    torch.testing.assert_close(found.losses, wanted.losses)


def test_a_second_derivative_is_refused_and_not_wrong(make_backbone: Make, make_task: MakeTask) -> None:
    backbone, task = whole(make_backbone()), make_task()
    params = {site: value.requires_grad_() for site, value in backbone.init().items()}
    loss = inner_objective(TunedResNet(backbone, torch.float64), task)
    _, found = gradients(loss, params, create_graph=True)
    length = torch.stack([value.square().sum() for value in found.values()]).sum()
    with pytest.raises(RuntimeError, match=r"once_differentiable|not have been used"):
        torch.autograd.grad(length, params["bn1.weight"])


@pytest.mark.parametrize("width", [2, 4])
def test_narrow_networks_in_float32_on_a_cpu(make_backbone: Make, make_task: MakeTask, width: int) -> None:
    """oneDNN writes out of bounds in channels-last there, see `suited`: it showed as a crash, not at once."""
    backbone = whole(make_backbone(width=width, dtype=torch.float32))
    task = make_task(17, size=17, dtype=torch.float32)
    for _ in range(5):
        (found,) = GraphTuning(backbone, captured=False).tune(task, adams(1e-3), 2)
        (wanted,) = PlainTuning(backbone).tune(task, adams(1e-3), 2)
        torch.testing.assert_close(found.losses, wanted.losses, rtol=1e-3, atol=1e-3)


def test_what_the_graphs_do_not_know_is_tuned_plainly(make_backbone: Make) -> None:
    backbone = make_backbone()
    graph = GraphEngine(backbone, captured=False)
    with_last = moving(backbone, (*every_weight(backbone.net), "last.weight"))
    other = whole(make_backbone())
    other.net.bn1.eps = 1e-3  # type: ignore[union-attr]
    some = moving(backbone, tuple(site for site in every_weight(backbone.net) if site != "layer2.0.bn1.bias"))
    for odd in (with_last, other, some):
        assert isinstance(tuning_like(graph, odd), PlainTuning)
        with pytest.raises(FewshiftError, match="take PlainTuning"):
            GraphTuning(odd, captured=False)


def test_tuning_follows_the_engine_for_adapters(make_backbone: Make) -> None:
    backbone = make_backbone()
    moved = whole(backbone)
    graph = GraphEngine(backbone, precision="float16", captured=False)
    for engine in (graph, Together(graph)):
        found = tuning_like(engine, moved)
        assert isinstance(found, GraphTuning)
        assert (found.precision, found.captured, found.name) == ("float16", False, "graph")
    for other in (PlainEngine(backbone), FoldedEngine(backbone), None):
        assert isinstance(tuning_like(other, moved), PlainTuning)
