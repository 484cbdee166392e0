import gc
import weakref
from collections.abc import Callable
from typing import Literal

import pytest
import torch
from adjoint_problem import RATES, STEPS, leaf, objectives, random_roots, spread, unrolled
from tiny_problem import SITES, tiny_features, tiny_problem, tiny_start
from torch import Tensor

from fewshift.core.coefficients import task_coefficients
from fewshift.core.losses import inner_objective, outer_objective, scored_outer_objective
from fewshift.core.metagrad import MetaGradient, coefficient_gradient, meta_gradient, root_gradients
from fewshift.core.precond import DESIGNS, initial_preconditioners
from fewshift.core.unroll import unroll
from fewshift.core.updates import Preconditioned
from fewshift.types import Labelled, Task, TaskParams


def tensors_of(found: MetaGradient) -> list[Tensor]:
    parts = (found.preconditioner, found.start, found.final)
    return [found.loss, found.inner_losses, *(t for part in parts for t in part.values())]


@pytest.mark.parametrize("order", [1, 2])
def test_nothing_is_left_behind_over_a_hundred_calls(order: int) -> None:
    problem = tiny_problem(seed=14)
    of = objectives(problem)
    matrices = {s: DESIGNS["gram"](root) for s, root in leaf(random_roots(1, "gram")).items()}

    def live() -> int:
        return sum(issubclass(type(thing), Tensor) for thing in gc.get_objects())

    def call() -> None:
        found = meta_gradient(of.inner, of.outer, problem.start, matrices, RATES, STEPS, order)
        assert all(not t.requires_grad and t.grad_fn is None for t in tensors_of(found))

    call()
    gc.collect()
    gc.disable()  # reference counting alone must do: a cycle would hold a graph until the collector comes
    try:
        before = live()
        for _ in range(100):
            call()
        after = live()
    finally:
        gc.enable()
    assert after == before
    assert all(param.grad is None for param in problem.start.values())


class Meter:
    """Counts the bytes that autograd keeps for backward passes."""

    def __init__(self) -> None:
        self.now = self.peak = 0

    def pack(self, tensor: Tensor) -> tuple[Tensor, object]:
        size = tensor.numel() * tensor.element_size()
        self.now += size
        self.peak = max(self.peak, self.now)
        token = Token()
        weakref.finalize(token, self._free, size)
        return tensor, token

    def _free(self, size: int) -> None:
        self.now -= size


class Token:
    """Dies with the saved tensor that it accompanies."""


def saved_bytes(work: Callable[[], object]) -> Meter:
    meter = Meter()
    with torch.autograd.graph.saved_tensors_hooks(meter.pack, lambda packed: packed[0]):
        work()
    return meter


@pytest.mark.parametrize("order", [1, 2])
def test_memory_for_graphs_does_not_depend_on_the_number_of_steps(order: int) -> None:
    problem = tiny_problem(seed=15, shot=30)
    of = objectives(problem)

    def ours(steps: int) -> int:
        meter = saved_bytes(
            lambda: meta_gradient(of.inner, of.outer, problem.start, None, RATES, steps, order)
        )
        assert meter.now == 0
        return meter.peak

    def naive(steps: int) -> int:
        return saved_bytes(lambda: unrolled(of, leaf(problem.start), None, steps, 2)).peak

    assert ours(1) == ours(5) == ours(20) > 0
    assert naive(20) > 3 * naive(5) > 6 * naive(1)


def test_unrolling_at_first_order_keeps_no_graph_of_the_network() -> None:
    """Proto-MAML's way: its memory grows with the steps at order 2 alone."""
    problem = tiny_problem(seed=15, shot=30)
    of, rule = objectives(problem), Preconditioned(None, RATES)

    def kept(steps: int, order: Literal[1, 2]) -> int:
        return saved_bytes(lambda: unroll(of.inner, leaf(problem.start), rule, steps, order)).peak

    assert kept(1, 1) == kept(5, 1) == kept(20, 1) > 0
    assert kept(20, 2) > 3 * kept(5, 2)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("images", [torch.bfloat16, torch.float32])
def test_half_precision_images_and_single_precision_parameters(images: torch.dtype, order: int) -> None:
    problem = tiny_problem(seed=16)
    network = tiny_features(torch.Generator().manual_seed(16), images)

    def features(params: TaskParams, batch: Tensor) -> Tensor:
        return network({s: p.to(images) for s, p in params.items()}, batch)

    support, query = problem.task.support, problem.episode.query
    task = Task(Labelled(support.images.to(images), support.labels), 3)
    episode = type(problem.episode)(
        task, Labelled(query.images.to(images), query.labels), problem.episode.address, (0, 1, 2)
    )
    matrices = {
        s: DESIGNS["gram"](r) for s, r in initial_preconditioners(("x",), SITES).roots_of("x").items()
    }
    found = meta_gradient(
        inner_objective(features, task),
        outer_objective(features, episode),
        tiny_start(torch.float32),
        matrices,
        RATES,
        STEPS,
        order,
    )
    assert all(t.dtype == torch.float32 and t.isfinite().all() for t in tensors_of(found))
    assert spread(found.preconditioner) > 0


@pytest.mark.parametrize("order", [1, 2])
def test_nothing_is_read_back_from_the_device(order: int) -> None:
    def elsewhere(tensor: Tensor) -> Tensor:
        return tensor.to("meta")  # has no values, so that reading one raises

    problem = tiny_problem(seed=17)
    support, query = problem.task.support, problem.episode.query
    task = Task(Labelled(elsewhere(support.images), elsewhere(support.labels)), 3)
    episode = type(problem.episode)(
        task, Labelled(elsewhere(query.images), elsewhere(query.labels)), problem.episode.address, (0, 1, 2)
    )

    def features(params: TaskParams, images: Tensor) -> Tensor:
        hidden = torch.tanh(images.flatten(1) @ params["first"].T)
        return torch.tanh(hidden @ params["second"].T) @ params["last"].T

    start = {s: elsewhere(p) for s, p in problem.start.items()}
    made = initial_preconditioners(("x", "y"), SITES, dtype=torch.float64).to("meta")
    found = meta_gradient(
        inner_objective(features, task),
        scored_outer_objective(features, episode),
        start,
        made.blend(task_coefficients(torch.empty(2, device="meta"))),
        RATES,
        STEPS,
        order,
    )
    assert coefficient_gradient(found.preconditioner, made.matrices()).shape == (2,)
    pulled = root_gradients(DESIGNS["gram"], made.roots_of("x"), found.preconditioner)
    assert all(t.device.type == "meta" for t in [*tensors_of(found), *pulled.values()])
