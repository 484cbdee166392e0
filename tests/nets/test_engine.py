from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from fewshift.benchmarks import public_loop
from fewshift.core.updates import Adadelta, Preconditioned, Update, site_rates
from fewshift.errors import FewshiftError
from fewshift.nets import choice, folded, precision, threads, winograd
from fewshift.nets.adapters import ResidualAdapters, adapters_at
from fewshift.nets.backbone import Backbone, freeze
from fewshift.nets.choice import choose_engine
from fewshift.nets.engine import Engine, FoldedEngine, PlainEngine
from fewshift.nets.frozen_net import cannot_graph, frozen_net
from fewshift.types import Task, TaskParams

Make = Callable[..., Backbone]
MakeTask = Callable[..., Task]
Jitter = Callable[[TaskParams], TaskParams]

ENGINES = [PlainEngine, FoldedEngine]


def largest_gap(found: TaskParams, wanted: TaskParams) -> float:
    assert found.keys() == wanted.keys()
    return max((found[site] - wanted[site]).abs().max().item() for site in wanted)


@pytest.mark.parametrize("engine", ENGINES)
def test_tsa_is_adadelta_on_a_parallel_adapter_network_step_for_step(
    engine: type[PlainEngine | FoldedEngine],
    make_backbone: Make,
    make_task: MakeTask,
) -> None:
    backbone, task = make_backbone(), make_task(7)
    update = Adadelta(site_rates(backbone.sites, 0.5, 1.0))
    for steps in (1, 2, 40):
        net = public_loop.PublicNet(backbone.net)
        losses = torch.tensor(public_loop.adapt(net, task, steps, 0.5, 1.0), dtype=torch.float64)
        wanted = {site: alpha.detach()[..., 0, 0] for site, alpha in net.adapters().items()}
        wanted["last"] = net.beta.detach()[..., 0, 0]
        found = engine(backbone).adapt(task, backbone.init(), update, steps)
        torch.testing.assert_close(found.losses, losses, rtol=0, atol=1e-10)
        assert largest_gap(found.params, wanted) < 1e-10
    assert losses[-1] < losses[0]
    with torch.no_grad():
        features = engine(backbone).embed(found.params, task.support.images)
        torch.testing.assert_close(features, net(task.support.images), rtol=0, atol=1e-9)


def rules(backbone: Backbone) -> dict[str, Update[object]]:
    generator = torch.Generator().manual_seed(0)
    roots = {
        s: torch.randn(len(v), len(v), generator=generator, dtype=v.dtype) for s, v in backbone.init().items()
    }
    matrices = {s: 0.1 * root.T @ root + torch.eye(len(root), dtype=root.dtype) for s, root in roots.items()}
    rates = site_rates(backbone.sites, 0.05, 0.05)
    return {
        "gd": Preconditioned(None, rates),  # type: ignore[dict-item]
        "tsp": Preconditioned(matrices, rates),  # type: ignore[dict-item]
        "adadelta": Adadelta(site_rates(backbone.sites, 0.5, 1.0)),  # type: ignore[dict-item]
    }


@pytest.mark.parametrize("channels", [256, 4], ids=["direct", "winograd"])
@pytest.mark.parametrize(
    ("rule", "width", "padding", "size"),
    [("gd", 4, 2, 41), ("tsp", 4, 2, 41), ("adadelta", 4, 2, 41), ("tsp", 8, 1, 28)],  # maps of 21, 11, 6, 3
)
def test_forty_folded_steps_are_forty_plain_steps(
    make_backbone: Make,
    make_task: MakeTask,
    monkeypatch: pytest.MonkeyPatch,
    rule: str,
    channels: int,
    width: int,
    padding: int,
    size: int,
) -> None:
    monkeypatch.setattr(folded, "WINOGRAD_CHANNELS", channels)
    monkeypatch.setattr(winograd, "pays", lambda device: True)  # also where AVX-512 makes it the slower one
    backbone, task = make_backbone(width, padding), make_task(7, size)
    update = rules(backbone)[rule]
    plain = PlainEngine(backbone).adapt(task, backbone.init(), update, 40)
    fast = FoldedEngine(backbone).adapt(task, backbone.init(), update, 40)
    torch.testing.assert_close(fast.losses, plain.losses, rtol=0, atol=1e-9)
    assert largest_gap(fast.params, plain.params) < 1e-9
    assert largest_gap(fast.params, backbone.init()) > 1e-3  # it went somewhere


def test_forty_steps_in_single_precision(make_backbone: Make, make_task: MakeTask) -> None:
    """At rates where single precision follows double precision at all, the folded engine does too."""
    exact, task = make_backbone(8, 2), make_task(7, 41)
    narrow, narrow_task = exact.to(dtype=torch.float32), make_task(7, 41, dtype=torch.float32)
    rates = site_rates(exact.sites, 5e-4, 5e-4)
    truth = PlainEngine(exact).adapt(task, exact.init(), Preconditioned(None, rates), 40)
    for engine in (PlainEngine(narrow), FoldedEngine(narrow)):
        found = engine.adapt(narrow_task, narrow.init(), Preconditioned(None, rates), 40)
        assert largest_gap({s: p.double() for s, p in found.params.items()}, truth.params) < 1e-5
        torch.testing.assert_close(found.losses.double(), truth.losses, rtol=1e-5, atol=1e-5)


def test_forty_steps_in_bfloat16_end_where_exact_ones_do(make_backbone: Make, make_task: MakeTask) -> None:
    """Rounding turns each step a little; the way and its end stay the same."""
    backbone = make_backbone(16, 2).to(dtype=torch.float32)
    task, new = make_task(40, 41, dtype=torch.float32), make_task(41, 41, dtype=torch.float32).support.images
    update = Preconditioned(None, site_rates(backbone.sites, 0.02, 0.02))
    exact, short = FoldedEngine(backbone), FoldedEngine(backbone, precision="bfloat16")
    wanted, found = (engine.adapt(task, backbone.init(), update, 40) for engine in (exact, short))
    assert all(p.dtype == torch.float32 for p in found.params.values())
    assert not torch.equal(found.losses, wanted.losses)  # it does compute otherwise
    torch.testing.assert_close(found.losses, wanted.losses, rtol=0.01, atol=0)
    start = backbone.init()
    for site in backbone.sites:
        way, other = (end.params[site] - start[site] for end in (wanted, found))
        assert F.cosine_similarity(way.flatten(), other.flatten(), dim=0) > 0.98
    assert wanted.losses[-1] < 0.9 * wanted.losses[0]
    moved = exact.embed(wanted.params, new) - exact.embed(start, new)
    apart = short.embed(found.params, new) - exact.embed(wanted.params, new)
    assert apart.norm() < 0.05 * moved.norm()
    assert torch.equal(short.embed(found.params, new), exact.embed(found.params, new))  # features stay exact


def test_a_small_step_is_not_lost_in_bfloat16(make_backbone: Make, make_task: MakeTask) -> None:
    """An adapter far below the last digit of the kernel's 16 bits still counts in the next step's sum."""
    backbone = make_backbone(8, 2).to(dtype=torch.float32)
    task = make_task(10, 41, dtype=torch.float32)
    update = Preconditioned(None, site_rates(backbone.sites, 1e-5, 1e-5))
    start = backbone.init()
    short = FoldedEngine(backbone, precision="bfloat16")
    one, ten = (short.adapt(task, start, update, steps).params for steps in (1, 10))
    for site in backbone.sites:
        torch.testing.assert_close(
            ten[site] - start[site], 10 * (one[site] - start[site]), rtol=0.1, atol=1e-6
        )


@pytest.mark.parametrize("has_it", [True, False])
def test_auto_takes_bfloat16_where_the_processor_has_it(
    has_it: bool, make_backbone: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision, "multiplies_bfloat16", lambda: has_it)
    backbone = make_backbone(4, 2)
    assert choice.chosen_precision(choose_engine(backbone, precision="auto")) == (
        "bfloat16" if has_it else ""
    )
    assert choice.chosen_precision(choose_engine(backbone)) == ""  # who does not ask gets exact numbers
    assert choice.chosen_precision(choose_engine(backbone, precision="bfloat16")) == "bfloat16"
    on_gpu = torch.device("cuda")
    assert precision.precision_for("auto", on_gpu) == "float16"
    assert precision.precision_for("auto", on_gpu, on_gpu="tf32") == "tf32"
    with pytest.raises(FewshiftError, match="choose float16"):
        precision.precision_for("bfloat16", on_gpu)


@pytest.mark.parametrize("asked", precision.PRECISIONS)
@pytest.mark.parametrize("name", ["auto", "plain", "folded"])
def test_a_precision_that_an_engine_lacks_is_refused_where_a_user_asks_for_it(
    name: str, asked: precision.Precision, make_backbone: Make
) -> None:
    engine = choose_engine(make_backbone(4, 2), name, asked)  # training says tf32 for "as torch is set up"
    choice.check_precision("auto", engine)
    if asked == "float32" or (asked == "bfloat16" and name != "plain"):
        choice.check_precision(asked, engine)
        assert choice.computed_in(engine) == asked
    else:
        with pytest.raises(FewshiftError, match=f"{asked} cannot be had here, .* in float32 on cpu: choose"):
            choice.check_precision(asked, engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_task_leaves_no_trace(
    engine: type[PlainEngine | FoldedEngine], make_backbone: Make, make_task: MakeTask
) -> None:
    backbone = make_backbone()
    first, second = make_task(9), make_task(12, way=4)
    worker: Engine = engine(backbone)
    start = backbone.init()
    before = {name: t.clone() for name, t in {**backbone.frozen, **start}.items()}
    images = [task.support.images.clone() for task in (first, second)]
    update = Adadelta(site_rates(backbone.sites, 0.5, 1.0))
    alone = worker.adapt(second, start, update, 5)
    worker.embed(worker.adapt(first, start, update, 5).params, first.support.images)
    again = worker.adapt(second, start, update, 5)
    assert torch.equal(alone.losses, again.losses)
    assert largest_gap(alone.params, again.params) == 0
    for name, tensor in {**backbone.frozen, **start}.items():
        assert torch.equal(tensor, before[name])
    for task, image in zip((first, second), images, strict=True):
        assert torch.equal(task.support.images, image)
    assert not any(value.requires_grad for value in (*alone.params.values(), alone.losses))
    features = worker.embed(alone.params, second.support.images)
    assert not features.requires_grad


@pytest.mark.parametrize("engine", ENGINES)
def test_an_embedding_does_not_depend_on_its_batch(
    engine: type[PlainEngine | FoldedEngine],
    make_backbone: Make,
    make_task: MakeTask,
    jitter: Jitter,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backbone = make_backbone()
    worker, params = engine(backbone), jitter(backbone.init())
    images = make_task(12).support.images
    whole = worker.embed(params, images)
    monkeypatch.setattr("fewshift.nets.folded_resnet.CPU_CHUNK", 5)
    monkeypatch.setattr("fewshift.nets.backbone.CHUNK", 5)
    torch.testing.assert_close(worker.embed(params, images), whole, rtol=0, atol=1e-12)
    torch.testing.assert_close(worker.embed(params, images[7:8]), whole[7:8], rtol=0, atol=1e-12)


@pytest.mark.parametrize("engine", ENGINES)
def test_alignment_alone(
    engine: type[PlainEngine | FoldedEngine], make_backbone: Make, make_task: MakeTask
) -> None:
    """With `last` as the only site an engine does what PA does, on features computed once."""
    backbone, task = make_backbone(), make_task()
    start = {"last": backbone.init()["last"]}
    found = engine(backbone).adapt(task, start, Adadelta({"last": 1.0}), 10)
    features = backbone.embed(task.support.images)
    weight = start["last"].clone().requires_grad_()
    optimizer = torch.optim.Adadelta([weight], lr=1.0)
    for _ in range(10):
        optimizer.zero_grad()
        centres = torch.stack(
            [(features @ weight.T)[task.support.labels == c].mean(0) for c in range(task.way)]
        )
        logits = 10 * nn.functional.cosine_similarity((features @ weight.T)[:, None], centres[None], dim=-1)
        nn.functional.cross_entropy(logits, task.support.labels).backward()
        optimizer.step()
    torch.testing.assert_close(found.params["last"], weight.detach(), rtol=0, atol=1e-10)


def test_choosing(make_backbone: Make) -> None:
    backbone = make_backbone()
    assert choose_engine(backbone).name == "folded"
    assert choose_engine(backbone, "plain").name == "plain"
    assert choose_engine(backbone, "folded").name == "folded"
    with pytest.raises(FewshiftError, match="no engine 'magic'"):
        choose_engine(backbone, "magic")

    class Other(ResidualAdapters):
        pass

    odd = Backbone(backbone.net, backbone.frozen, Other(backbone.sites[:-1]))
    assert choose_engine(odd).name == "plain"
    with pytest.raises(FewshiftError, match="choose auto or plain"):
        choose_engine(odd, "folded")


SOME_SITES = [("conv1", "layer1.0.conv1"), ("layer2.0.downsample.0",), ("layer1.0.conv2", "layer3.0.conv1")]


@pytest.mark.parametrize("sites", SOME_SITES)
def test_sites_of_ones_own_move_whatever_engine_is_chosen(
    sites: tuple[str, ...], make_backbone: Make, make_task: MakeTask, jitter: Jitter
) -> None:
    net, task = make_backbone(padding=2).net, make_task(size=33)
    backbone = freeze(net, adapters_at(net, sites))
    start = jitter(backbone.init())
    update = Preconditioned(None, site_rates(start, 0.2, 0.1))
    engine, plain = choose_engine(backbone), PlainEngine(backbone)
    wanted = plain.adapt(task, start, update, 3).params
    found = engine.adapt(task, start, update, 3).params
    assert largest_gap(found, wanted) < 1e-9 < largest_gap(start, wanted)
    images = task.support.images
    torch.testing.assert_close(engine.embed(wanted, images), plain.embed(wanted, images))


def test_graphs_are_for_all_sites_of_the_resnet_together(
    make_backbone: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = make_backbone().net
    some = freeze(net, adapters_at(net, ("layer4.1.conv2",)))
    assert cannot_graph(make_backbone()) is None
    assert "all seventeen sites" in (cannot_graph(some) or "")
    with pytest.raises(FewshiftError, match="choose the folded engine"):
        frozen_net(some, torch.float64)
    with pytest.raises(FewshiftError, match="all seventeen sites"):
        choose_engine(some, "graph")
    monkeypatch.setattr(choice, "usual_engine", lambda device: ("graph", "as if on a GPU"))
    assert choose_engine(make_backbone()).name == "graph"
    assert choose_engine(some).name == "folded"


@pytest.mark.parametrize("engine", ENGINES)
def test_unknown_sites_are_refused(
    engine: type[PlainEngine | FoldedEngine], make_backbone: Make, make_task: MakeTask
) -> None:
    backbone = make_backbone()
    start = backbone.init() | {"layer9.0.conv1": torch.eye(4)}
    with pytest.raises(FewshiftError, match=r"no site layer9\.0\.conv1"):
        engine(backbone).adapt(make_task(), start, Preconditioned(None, {}), 1)


def test_small_work_runs_on_one_thread_and_leaves_the_setting(
    make_backbone: Make, make_task: MakeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    backbone, task = make_backbone(), make_task()
    seen = []

    class Watching(Preconditioned):
        def step(self, params: TaskParams, gradients: TaskParams, state: None) -> tuple[TaskParams, None]:
            seen.append(torch.get_num_threads())
            return super().step(params, gradients, state)

    update = Watching(None, site_rates(backbone.sites, 0.01, 0.01))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        FoldedEngine(backbone).adapt(task, backbone.init(), update, 1)
        monkeypatch.setattr(threads, "ONE_THREAD_BELOW", 1.0)
        FoldedEngine(backbone).adapt(task, backbone.init(), update, 1)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert seen == [1, 2]


def test_operations_are_about_those_that_torch_counts(make_backbone: Make) -> None:
    backbone, images = make_backbone(8, 2, torch.float32), torch.randn(2, 3, 84, 84)
    with FlopCounterMode(display=False) as counter:
        backbone.embed(images)
    assert FoldedEngine(backbone).net.operations(images) == pytest.approx(counter.get_total_flops(), rel=0.2)
