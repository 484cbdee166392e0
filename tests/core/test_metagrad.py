from collections.abc import Mapping

import pytest
import torch
from adjoint_problem import RATES, STEPS, assert_same, leaf, objectives, random_roots, spread, unrolled
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_problem import SITES, random_like, tiny_problem
from torch import Tensor

from fewshift.core.coefficients import classifier_loss, task_coefficients
from fewshift.core.losses import inner_objective, scored_outer_objective
from fewshift.core.metagrad import (
    MetaGradient,
    coefficient_gradient,
    linearised,
    meta_gradient,
    root_gradients,
)
from fewshift.core.precond import DESIGNS, blend_sites, initial_preconditioners
from fewshift.core.updates import site_rates
from fewshift.types import Design, TaskParams


def of_roots(design: Design, roots: Mapping[str, Tensor], pulls: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {site: root_gradients(design, roots[site], pull) for site, pull in pulls.items()}


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize(
    "name", ["gram", "gram_only", "cholesky", "cholesky_identity", "free", "low_rank", "bounded"]
)
def test_the_adjoint_equals_autograd_through_the_unrolled_loop(name: str, order: int) -> None:
    problem = tiny_problem(seed=7)
    of, design = objectives(problem), DESIGNS[name]
    roots, start = leaf(random_roots(1, name)), leaf(problem.start)
    matrices = {s: design(root) for s, root in roots.items()}
    loss = unrolled(of, start, matrices, STEPS, order)
    by_matrix = torch.autograd.grad(loss, list(matrices.values()), retain_graph=True)
    by_root = torch.autograd.grad(loss, list(roots.values()), retain_graph=True)
    by_start = torch.autograd.grad(loss, list(start.values()))

    found = meta_gradient(of.inner, of.outer, problem.start, matrices, RATES, STEPS, order)
    torch.testing.assert_close(found.loss, loss.detach())
    assert spread(found.preconditioner) > 1e-3
    assert_same(found.preconditioner, dict(zip(SITES, by_matrix, strict=True)))
    assert_same(of_roots(design, roots, found.preconditioner), dict(zip(SITES, by_root, strict=True)))
    assert_same(found.start, dict(zip(SITES, by_start, strict=True)))


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    steps=st.integers(1, 7),
    way=st.integers(2, 6),
    shot=st.integers(1, 4),
    order=st.sampled_from([1, 2]),
)
def test_so_it_does_on_any_task(seed: int, steps: int, way: int, shot: int, order: int) -> None:
    problem = tiny_problem(seed, way=way, shot=shot)
    of = objectives(problem)
    matrices = leaf({s: DESIGNS["gram"](root) for s, root in random_roots(seed, "gram").items()})
    start = leaf(problem.start)
    loss = unrolled(of, start, matrices, steps, order)
    expected = torch.autograd.grad(loss, [*matrices.values(), *start.values()])
    found = meta_gradient(of.inner, of.outer, problem.start, matrices, RATES, steps, order)
    got = [*found.preconditioner.values(), *found.start.values()]
    scale = max(float(value.abs().max()) for value in expected)  # chaotic tasks have enormous gradients
    for ours, autograds in zip(got, expected, strict=True):
        torch.testing.assert_close(ours, autograds, rtol=1e-8, atol=1e-8 * (1 + scale))


@pytest.mark.parametrize("name", ["gram", "free", "cholesky"])
def test_order_two_equals_finite_differences_of_the_root(name: str) -> None:
    problem = tiny_problem(seed=3)
    of, design = objectives(problem), DESIGNS[name]
    roots = random_roots(2, name)

    def loss_at(shift: float, along: dict[str, Tensor]) -> float:
        matrices = {s: design(root + shift * along[s]) for s, root in roots.items()}
        return meta_gradient(of.inner, of.outer, problem.start, matrices, RATES, STEPS, 1).loss.item()

    matrices = {s: design(root) for s, root in roots.items()}
    found = meta_gradient(of.inner, of.outer, problem.start, matrices, RATES, STEPS, 2)
    slopes = of_roots(design, roots, found.preconditioner)
    for seed in range(4):
        along = random_like(roots, seed)
        h = 1e-4  # fourth-order central differences: truncation and rounding both near 1e-11
        near, far = loss_at(h, along) - loss_at(-h, along), loss_at(2 * h, along) - loss_at(-2 * h, along)
        expected = (8 * near - far) / (12 * h)
        slope = sum(float((slopes[s] * along[s]).sum()) for s in SITES)
        assert slope == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_order_two_equals_finite_differences_of_the_start() -> None:
    problem = tiny_problem(seed=4)
    of = objectives(problem)
    along = random_like(problem.start, 5)

    def at(shift: float) -> MetaGradient:
        start = {s: p + shift * along[s] for s, p in problem.start.items()}
        return meta_gradient(of.inner, of.outer, start, None, RATES, STEPS, 2)

    h = 1e-4
    near, far = at(h).loss - at(-h).loss, at(2 * h).loss - at(-2 * h).loss
    slope = sum(float((at(0).start[s] * along[s]).sum()) for s in SITES)
    assert slope == pytest.approx(((8 * near - far) / (12 * h)).item(), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("order", [1, 2])
def test_no_preconditioner_is_the_identity(order: int) -> None:
    problem = tiny_problem(seed=5)
    of = objectives(problem)
    ones = {s: torch.eye(m, dtype=torch.float64) for s, m in SITES.items()}
    none = meta_gradient(of.inner, of.outer, problem.start, None, RATES, STEPS, order)
    some = meta_gradient(of.inner, of.outer, problem.start, ones, RATES, STEPS, order)
    assert_same(none.preconditioner, some.preconditioner)
    assert_same(none.start, some.start)
    assert_same(none.final, some.final)


def test_root_gradient_of_gram_is_m_times_d_plus_its_transpose() -> None:
    roots, pulls = random_roots(1, "gram", domains=3), random_roots(2, "gram", domains=3)
    expected = {s: roots[s] @ (pulls[s] + pulls[s].mT) for s in SITES}
    assert_same(of_roots(DESIGNS["gram"], roots, pulls), expected)


def test_the_identity_has_nothing_to_learn() -> None:
    made = initial_preconditioners(("x", "y"), SITES, "identity", dtype=torch.float64)
    pulls = {s: torch.ones(2, m, m, dtype=torch.float64) for s, m in SITES.items()}
    assert spread(of_roots(DESIGNS["identity"], made.roots, pulls)) == 0


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("domains", [1, 4])
def test_gradients_reach_the_logits_through_the_coefficients(domains: int, order: int) -> None:
    problem = tiny_problem(seed=8)
    of = objectives(problem)
    stacks = {s: DESIGNS["gram"](root) for s, root in random_roots(3, "gram", domains=domains).items()}
    logits = torch.randn(domains, dtype=torch.float64, requires_grad=True)
    coefficients = task_coefficients(logits)
    auxiliary = unrolled(of, leaf(problem.start), blend_sites(coefficients, stacks), STEPS, order)
    (by_coefficient,) = torch.autograd.grad(auxiliary, coefficients, retain_graph=True)
    (by_logit,) = torch.autograd.grad(classifier_loss(logits, 0, auxiliary, 0.7), logits)

    coefficients = task_coefficients(logits)
    matrices = blend_sites(coefficients.detach(), stacks)
    found = meta_gradient(of.inner, of.outer, problem.start, matrices, RATES, STEPS, order)
    slope = coefficient_gradient(found.preconditioner, stacks)
    assert by_coefficient.abs().max() > 1e-3
    torch.testing.assert_close(slope, by_coefficient, rtol=1e-10, atol=1e-10)
    loss = classifier_loss(logits, 0, linearised(found.loss, coefficients, slope), 0.7)
    torch.testing.assert_close(torch.autograd.grad(loss, logits)[0], by_logit, rtol=1e-10, atol=1e-10)
    ours, theirs = loss.item(), classifier_loss(logits, 0, auxiliary, 0.7).item()
    assert ours == pytest.approx(theirs, rel=1e-12)


def test_starting_values_of_the_domains_get_their_share() -> None:
    problem = tiny_problem(seed=9)
    of = objectives(problem)
    stacks = leaf({s: torch.stack([p, p + 0.1, p - 0.2]) for s, p in problem.start.items()})
    coefficients = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64, requires_grad=True)
    loss = unrolled(of, blend_sites(coefficients, stacks), None, STEPS, 2)
    *by_stack, by_coefficient = torch.autograd.grad(loss, [*stacks.values(), coefficients])
    start = {s: p.detach() for s, p in blend_sites(coefficients, stacks).items()}
    found = meta_gradient(of.inner, of.outer, start, None, RATES, STEPS, 2)
    for site, expected in zip(SITES, by_stack, strict=True):
        torch.testing.assert_close(coefficients.detach()[:, None, None] * found.start[site], expected)
    torch.testing.assert_close(coefficient_gradient(found.start, stacks), by_coefficient)


def test_the_first_order_gradient_is_minus_query_gradient_times_summed_support_gradients() -> None:
    problem = tiny_problem(seed=10)
    of = objectives(problem)
    found = meta_gradient(of.inner, of.outer, problem.start, None, RATES, 1, 1)
    inner = dict(
        zip(SITES, torch.autograd.grad(of.inner(s0 := leaf(problem.start)), list(s0.values())), strict=True)
    )
    outer = dict(
        zip(SITES, torch.autograd.grad(of.outer(s1 := leaf(found.final)), list(s1.values())), strict=True)
    )
    assert_same(found.start, outer)
    assert_same(found.preconditioner, {s: -RATES[s] * outer[s] @ inner[s].T for s in SITES})


def test_a_preconditioner_grows_where_query_and_support_agree() -> None:
    problem = tiny_problem(seed=11)
    inner = inner_objective(problem.features, problem.task)
    rates = site_rates(SITES, 0.01, 0.01)
    agreeing = meta_gradient(inner, inner, problem.start, None, rates, 1, 2)  # the query is the support
    opposed = meta_gradient(inner, lambda theta: -inner(theta), problem.start, None, rates, 1, 2)
    for (
        site
    ) in SITES:  # −D is then close to a multiple of g gᵀ, so it has a positive trace and the loss falls
        assert agreeing.preconditioner[site].trace() < 0
        assert opposed.preconditioner[site].trace() > 0
    grown = {s: torch.eye(m) - agreeing.preconditioner[s] for s, m in SITES.items()}
    assert meta_gradient(inner, inner, problem.start, grown, rates, 1, 1).loss < agreeing.loss


def test_one_product_fewer_when_the_start_is_not_asked_for() -> None:
    problem = tiny_problem(seed=12)
    of = objectives(problem)
    matrices = {s: DESIGNS["gram"](root) for s, root in random_roots(1, "gram").items()}
    calls = [0]

    def counted(params: TaskParams) -> Tensor:
        calls[0] += 1
        return of.inner(params)

    exact = meta_gradient(counted, of.outer, problem.start, matrices, RATES, STEPS, 2)
    assert calls == [2 * STEPS]
    calls[0] = 0
    brief = meta_gradient(counted, of.outer, problem.start, matrices, RATES, STEPS, 2, exact_start=False)
    assert calls == [2 * STEPS - 1]
    assert_same(brief.preconditioner, exact.preconditioner, 0.0)
    calls[0] = 0
    meta_gradient(counted, of.outer, problem.start, matrices, RATES, STEPS, 1)
    assert calls == [STEPS]


def test_notes_of_the_task() -> None:
    problem = tiny_problem(seed=13)
    of = objectives(problem)
    scored = scored_outer_objective(problem.features, problem.episode)
    found = meta_gradient(of.inner, scored, problem.start, None, RATES, 3, 1)
    plain = meta_gradient(of.inner, of.outer, problem.start, None, RATES, 3, 1)
    assert plain.accuracy is None
    assert found.accuracy == scored(found.final).accuracy
    assert_same(found.preconditioner, plain.preconditioner, 0.0)
    torch.testing.assert_close(found.inner_losses[0], of.inner(problem.start))
    assert found.inner_losses.shape == (3,)


@pytest.mark.parametrize("order", [1, 2])
def test_idle_sites_and_no_steps(order: int) -> None:
    params = {"used": torch.ones(2, 2), "idle": torch.ones(3, 3)}
    rates = {"used": 0.1, "idle": 0.1}

    def square(theta: TaskParams) -> Tensor:
        return theta["used"].square().sum()

    found = meta_gradient(square, square, params, None, rates, 2, order)
    assert spread({"idle": found.preconditioner["idle"]}) == 0
    torch.testing.assert_close(found.start["used"], 2 * torch.ones(2, 2) * (0.8**4 if order == 2 else 0.8**2))
    linear = meta_gradient(lambda theta: theta["used"].sum(), square, params, None, rates, 2, order)
    torch.testing.assert_close(linear.start["used"], 2 * 0.8 * torch.ones(2, 2))
    still = meta_gradient(square, square, params, None, rates, 0, order)
    assert spread(still.preconditioner) == 0
    assert still.inner_losses.shape == (0,)


def test_there_are_two_orders() -> None:
    with pytest.raises(ValueError, match="order is 1 or 2, not 3"):
        meta_gradient(lambda p: p["a"].sum(), lambda p: p["a"].sum(), {}, None, {}, 1, 3)  # type: ignore[arg-type]


def test_the_orders_differ_and_point_the_same_way() -> None:
    problem = tiny_problem(seed=0)
    of = objectives(problem)
    first, second = (
        torch.cat([d.flatten() for d in found.preconditioner.values()])
        for found in (
            meta_gradient(of.inner, of.outer, problem.start, None, RATES, STEPS, order) for order in (1, 2)
        )
    )
    assert 0.8 < torch.nn.functional.cosine_similarity(first, second, dim=0) < 0.9999
