import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from fewshift.core.losses import support_loss
from fewshift.core.updates import Adadelta, Preconditioned, TwoSided, site_rates
from fewshift.nets.backbone import Backbone
from fewshift.nets.capture import kept_or_made
from fewshift.nets.cell_loss import FAR, MAX_WAY, Targets, cell_gradients, cell_losses
from fewshift.nets.cells import Cells, Shape
from fewshift.nets.engine import FoldedEngine, PlainEngine
from fewshift.nets.graph import GraphEngine
from fewshift.nets.notices import say_once
from fewshift.nets.packing import padded_size, shape_for
from fewshift.nets.static import Rule
from fewshift.types import Labelled, Task

Make = Callable[..., Backbone]
MakeTask = Callable[..., Task]


def rules(backbone: Backbone) -> dict[str, Rule]:
    rates = site_rates(backbone.sites, 0.05, 0.3)
    generator = torch.Generator().manual_seed(5)

    def positive(size: int, like: Tensor) -> Tensor:
        root = 0.3 * torch.randn(size, size, generator=generator, dtype=torch.float64)
        return (root.T @ root + torch.eye(size, dtype=torch.float64)).to(like)

    start = backbone.init()
    matrices = {site: positive(value.shape[0], value) for site, value in start.items()}
    inputs = {site: positive(value.shape[1], value) for site, value in start.items()}
    return {
        "plain descent": Preconditioned(None, rates),
        "preconditioned": Preconditioned(matrices, rates),
        "whitened": TwoSided(None, inputs, rates),
        "preconditioned on both sides": TwoSided(matrices, inputs, rates),
        "adadelta": Adadelta(site_rates(backbone.sites, 0.5, 2.0)),
        "preconditioned adadelta": Adadelta(rates, preconditioner=matrices),
    }


def test_padding_rows_and_classes_changes_no_loss_and_no_gradient() -> None:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(12, 6, generator=generator, dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([0, 1, 2] * 3)
    weights = torch.cat([torch.ones(9, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)])
    far = torch.full((1, MAX_WAY), FAR, dtype=torch.float64)
    far[:, :3] = 0
    targets = Targets(Cells(Shape(1, 1, 12), torch.device("cpu")), features)
    wanted = support_loss(features[:9], labels, 3)
    targets.labels.copy_(torch.cat([labels, torch.zeros(3, dtype=torch.int64)]))
    targets.set(weights.expand(2, 1, 12), far)
    found = cell_losses(features[None], targets).sum()
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)
    (a,) = torch.autograd.grad(wanted, features)
    (b,) = torch.autograd.grad(found, features)
    torch.testing.assert_close(b, a, rtol=0, atol=1e-12)


def test_the_written_gradient_is_the_losses() -> None:
    generator = torch.Generator().manual_seed(0)
    cells = Cells(Shape(3, 5, 4), torch.device("cpu"))
    cells.assign([2, 2])  # the last cell is nobody's, the last task has none
    pooled = torch.randn(5, 4, 6, generator=generator, dtype=torch.float64, requires_grad=True)
    last = torch.randn(5, 6, 6, generator=generator, dtype=torch.float64, requires_grad=True)
    targets = Targets(cells, pooled)
    targets.labels.copy_(torch.arange(20).view(5, 4) % 3)
    rows = (torch.rand(2, 5, 4, generator=generator) < 0.8).double()
    rows[:, -1] = 0
    far = torch.full((3, MAX_WAY), FAR, dtype=torch.float64)
    far[:, :3] = 0
    targets.set(rows, far)
    wanted = cell_losses(pooled @ last.mT, targets)
    first, second = torch.autograd.grad(wanted.sum(), (pooled, last))
    with torch.no_grad():
        losses, _, at_pooled, at_last = cell_gradients(pooled, last, targets)
    torch.testing.assert_close(losses, wanted, rtol=0, atol=1e-12)
    torch.testing.assert_close(at_pooled, first, rtol=0, atol=1e-12)
    torch.testing.assert_close(at_last, second, rtol=0, atol=1e-12)


RULES = (
    "plain descent",
    "preconditioned",
    "whitened",
    "preconditioned on both sides",
    "adadelta",
    "preconditioned adadelta",
)


@pytest.mark.parametrize("rule", RULES)
def test_static_steps_equal_the_definition(rule: str, make_backbone: Make, make_task: MakeTask) -> None:
    backbone = make_backbone()
    engine = GraphEngine(backbone, captured=False)
    update = rules(backbone)[rule]
    for images, way in ((5, 2), (12, 3), (30, 5), (12, 3)):  # the last meets buffers that others have used
        task = make_task(images, way=way)
        wanted = PlainEngine(backbone).adapt(task, backbone.init(), update, 10)
        found = engine.adapt(task, backbone.init(), update, 10)
        torch.testing.assert_close(found.losses, wanted.losses, rtol=0, atol=1e-9)
        for site, value in wanted.params.items():
            torch.testing.assert_close(found.params[site], value, rtol=0, atol=1e-9)
    assert len(engine.steps) == 3


def test_one_set_of_buffers_serves_all_rates(make_backbone: Make, make_task: MakeTask) -> None:
    backbone, task = make_backbone(), make_task(12)
    engine = GraphEngine(backbone, captured=False)
    for adapters, last in ((0.05, 0.3), (0.25, 0.05)):
        update = Preconditioned(None, site_rates(backbone.sites, adapters, last))
        wanted = PlainEngine(backbone).adapt(task, backbone.init(), update, 5)
        torch.testing.assert_close(engine.adapt(task, backbone.init(), update, 5).losses, wanted.losses)
    assert len(engine.steps) == 1


def test_a_task_that_fits_no_graph_goes_through_the_folded_engine(
    make_backbone: Make, caplog: pytest.LogCaptureFixture
) -> None:
    say_once.cache_clear()
    backbone = make_backbone()
    many = Task(Labelled(torch.randn(60, 3, 28, 28, dtype=torch.float64), torch.arange(60)), 60)
    update = Preconditioned(None, site_rates(backbone.sites, 0.05, 0.3))
    engine = GraphEngine(backbone, captured=False)
    found = engine.adapt(many, backbone.init(), update, 2)
    assert torch.equal(found.losses, FoldedEngine(backbone).adapt(many, backbone.init(), update, 2).losses)
    assert not engine.steps
    engine.adapt(many, backbone.init(), update, 1)
    assert [record.message for record in caplog.records] == [
        "fewshift: there is no graph for tasks of more than 50 ways: the folded engine does it"
    ]


def test_sizes_are_padded_to_the_next_of_a_short_list() -> None:
    assert [padded_size(n) for n in (1, 8, 9, 33, 499, 512, 513)] == [8, 8, 16, 48, 512, 512, None]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("rule", RULES)
def test_captured_graphs_equal_the_definition(rule: str, make_backbone: Make, make_task: MakeTask) -> None:
    backbone = make_backbone(width=16).to("cuda")
    engine = GraphEngine(backbone)
    update = rules(backbone)[rule]
    for images, way in ((5, 2), (12, 3), (30, 5), (12, 3)):
        task = make_task(images, way=way)
        there = Task(Labelled(task.support.images.cuda(), task.support.labels.cuda()), way)
        wanted = PlainEngine(backbone).adapt(there, backbone.init(), update, 10)
        found = engine.adapt(there, backbone.init(), update, 10)
        torch.testing.assert_close(found.losses, wanted.losses, rtol=0, atol=1e-7)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_graphs_of_one_engine_work_in_the_same_memory(make_backbone: Make, make_task: MakeTask) -> None:
    """Four sizes take little more than the largest, and no graph is disturbed by what others left there."""
    backbone = make_backbone(width=16).to("cuda")
    engine, rule = GraphEngine(backbone), rules(backbone)["preconditioned"]
    tasks = []
    for images in (96, 80, 64, 48):
        here = make_task(images, size=84).support
        tasks.append(Task(Labelled(here.images.cuda(), here.labels.cuda()), 3))
    wanted = [PlainEngine(backbone).adapt(task, backbone.init(), rule, 3).losses for task in tasks]
    held = []
    for _ in range(2):
        for task, losses in zip(tasks, wanted, strict=True):
            found = engine.adapt(task, backbone.init(), rule, 3)
            torch.testing.assert_close(found.losses, losses, rtol=0, atol=1e-7)
            torch.cuda.empty_cache()
            held.append(torch.cuda.memory_reserved())
    buffers = sum(
        step.images.nbytes + sum(part.nbytes for part in step.head) for step in engine.steps.values()
    )
    assert held[-1] - held[0] < buffers  # the graphs' own memory is many times that


@pytest.mark.parametrize("sizes", [((5, 5),) * 3, ((5, 2), (12, 3), (30, 6))])
def test_tasks_together_equal_tasks_alone(
    sizes: tuple[tuple[int, int], ...], make_backbone: Make, make_task: MakeTask
) -> None:
    together(GraphEngine(make_backbone(), captured=False), sizes, make_task, atol=1e-9)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("sizes", [((5, 5),) * 3, ((5, 2), (12, 3), (30, 6))])
def test_captured_tasks_together_equal_tasks_alone(
    sizes: tuple[tuple[int, int], ...], make_backbone: Make, make_task: MakeTask
) -> None:
    together(GraphEngine(make_backbone(width=16).to("cuda")), sizes, make_task, atol=1e-7)


def together(
    engine: GraphEngine, sizes: tuple[tuple[int, int], ...], make_task: MakeTask, atol: float
) -> None:
    backbone = engine.backbone
    tasks = []
    for images, way in sizes:
        there = make_task(images, way=way).support
        tasks.append(Task(Labelled(there.images.to(backbone.device), there.labels.to(backbone.device)), way))
    matrices = rules(backbone)["preconditioned"].preconditioner
    updates = [
        Preconditioned(matrices, site_rates(backbone.sites, 0.05 * (k + 1), 0.3)) for k in range(len(tasks))
    ]
    found = engine.adapt_many(tasks, [backbone.init()] * len(tasks), updates, 10)
    assert len(engine.steps) == 1
    for task, update, one in zip(tasks, updates, found, strict=True):
        wanted = PlainEngine(backbone).adapt(task, backbone.init(), update, 10)
        torch.testing.assert_close(one.losses, wanted.losses, rtol=0, atol=atol)
        for site, value in wanted.params.items():
            torch.testing.assert_close(one.params[site], value, rtol=0, atol=atol)


def test_nearly_as_many_tasks_as_cells_still_have_their_own(make_backbone: Make, make_task: MakeTask) -> None:
    """Nine tasks in ten cells: both are rounded to ten, and a task of two cells must keep its second one."""
    backbone = make_backbone()
    tasks = [make_task(images, way=2) for images in (5, 5, 6, 12, 7, 5, 5, 8, 6)]
    update = Preconditioned(None, site_rates(backbone.sites, 0.05, 0.1))
    engine, starts = GraphEngine(backbone, captured=False), [backbone.init()] * len(tasks)
    found = engine.adapt_many(tasks, starts, [update] * len(tasks), 3)
    assert len(engine.steps) == 1
    for task, one in zip(tasks, found, strict=True):
        wanted = PlainEngine(backbone).adapt(task, backbone.init(), update, 3)
        torch.testing.assert_close(one.losses, wanted.losses, rtol=0, atol=1e-9)


def test_a_shape_has_room_and_takes_no_cell_for_a_task() -> None:
    for tasks in range(1, 65):
        for cells in range(tasks, 65):
            shape = shape_for(tasks, cells, 8)
            assert shape.tasks >= tasks
            assert shape.cells >= cells
            assert shape.one_each == (tasks == cells)
    with pytest.raises(ValueError, match="one cell each"):
        Cells(Shape(3, 3, 8), torch.device("cpu")).assign([1, 2])


@pytest.mark.parametrize("counts", [(4, 4, 4), (4, 5, 4, 1), (4, 0, 0, 4, 0)])
def test_features_of_many_tasks_are_those_of_each(counts: tuple[int, ...], make_backbone: Make) -> None:
    """Batches hold tasks with equally many images; a task without all sites stands alone."""
    backbone = make_backbone()
    generator = torch.Generator().manual_seed(0)
    images = [torch.randn(n, 3, 20, 20, generator=generator, dtype=backbone.dtype) for n in counts]
    many = [{site: (1 + k) * value for site, value in backbone.init().items()} for k in range(len(counts))]
    many[1] = {}
    plain, graph = PlainEngine(backbone), GraphEngine(backbone, precision="float32", captured=False)
    for found, wanted in zip(graph.embed_many(many, images), plain.embed_many(many, images), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_batches_of_a_few_sizes_give_the_same_features(make_backbone: Make) -> None:
    """On a GPU batches are filled up; nobody sees it."""
    backbone = make_backbone().to("cuda")
    images = torch.randn(11, 3, 20, 20, dtype=backbone.dtype, device="cuda")
    engine = GraphEngine(backbone, precision="float32")
    params = backbone.init()
    for embed in (
        backbone.embed,
        partial(engine.embed, params),
        partial(PlainEngine(backbone).embed, params),
    ):
        singly = torch.cat([embed(image[None]) for image in images])
        torch.testing.assert_close(embed(images), singly, rtol=1e-3, atol=1e-4)


def test_a_task_that_diverges_harms_no_other(make_backbone: Make, make_task: MakeTask) -> None:
    backbone = make_backbone()
    tasks = [make_task(12, way=3), make_task(30, way=6), make_task(17, way=4)]
    calm, wild = (Preconditioned(None, site_rates(backbone.sites, rate, rate)) for rate in (0.05, 1e300))
    engine = GraphEngine(backbone, captured=False)
    found = engine.adapt_many(tasks, [backbone.init()] * 3, [calm, wild, calm], 4)
    assert not bool(found[1].losses.isfinite().all())
    for place in (0, 2):
        wanted = PlainEngine(backbone).adapt(tasks[place], backbone.init(), calm, 4)
        torch.testing.assert_close(found[place].losses, wanted.losses, rtol=0, atol=1e-9)


def half(engine: GraphEngine, make_task: MakeTask) -> None:
    """16 bits follow 32 for some steps: sums are added up in 32 bits and gradients do not underflow."""
    backbone = engine.backbone
    there = make_task(30, way=6, dtype=torch.float32).support
    task = Task(Labelled(there.images.to(backbone.device), there.labels.to(backbone.device)), 6)
    update = Preconditioned(None, site_rates(backbone.sites, 0.02, 0.1))
    wanted = PlainEngine(backbone).adapt(task, backbone.init(), update, 3)
    for count in (1, 2):
        found = engine.adapt_many([task] * count, [backbone.init()] * count, [update] * count, 3)[-1]
        torch.testing.assert_close(found.losses, wanted.losses, rtol=5e-3, atol=1e-3)
        for site, value in wanted.params.items():
            moved, start = found.params[site] - value, value - backbone.init()[site]
            assert float(moved.norm() / start.norm()) < 0.1, site
    features = engine.embed(wanted.params, task.support.images)
    exact = PlainEngine(backbone).embed(wanted.params, task.support.images)
    assert float((features - exact).norm() / exact.norm()) < 0.01


def test_sixteen_bits_stay_near_thirty_two(make_backbone: Make, make_task: MakeTask) -> None:
    backbone = make_backbone(width=8, dtype=torch.float32)
    half(GraphEngine(backbone, precision="float16", captured=False), make_task)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_captured_sixteen_bits_stay_near_thirty_two(make_backbone: Make, make_task: MakeTask) -> None:
    backbone = make_backbone(width=16, dtype=torch.float32).to("cuda")
    half(GraphEngine(backbone, precision="float16"), make_task)


def test_when_memory_is_full_of_graphs_the_others_go() -> None:
    kept: dict[str, int] = {}

    def full() -> int:
        if kept or not room:
            raise torch.OutOfMemoryError("full")
        return 2

    room = True
    assert kept_or_made(kept, "first", lambda: 1) == kept_or_made(kept, "first", full) == 1
    assert kept_or_made(kept, "second", full) == 2
    assert kept == {"second": 2}
    failed = weakref.WeakSet[Any]()

    def once() -> int:
        if failed:
            raise AssertionError("the failed attempt still holds its memory")
        if kept:
            buffer = torch.zeros(3)
            failed.add(buffer)
            raise torch.OutOfMemoryError("full")
        return 3

    assert kept_or_made(kept, "third", once) == 3
    room, kept = False, {}
    with pytest.raises(torch.OutOfMemoryError):
        kept_or_made(kept, "third", full)
