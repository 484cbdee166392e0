import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tiny_problem import SITES, random_like, tiny_problem

from fewshift.core.descent import descend, gradients
from fewshift.core.losses import inner_objective
from fewshift.core.precond import DESIGNS, FEW_ROWS
from fewshift.core.updates import Adadelta, Preconditioned, Update, site_rates

RATES = site_rates(SITES, adapters=0.05, last=0.3)


def by_torch(
    optimiser: type[torch.optim.Optimizer], steps: int, **options: float
) -> list[dict[str, torch.Tensor]]:
    """The trajectory of a torch optimiser with one group of parameters a site."""
    problem = tiny_problem()
    objective = inner_objective(problem.features, problem.task)
    params = {site: torch.nn.Parameter(param.clone()) for site, param in problem.start.items()}
    rule = optimiser([{"params": [param], "lr": RATES[site]} for site, param in params.items()], **options)
    path = []
    for _ in range(steps):
        rule.zero_grad()
        objective(dict(params)).backward()
        rule.step()
        path.append({site: param.detach().clone() for site, param in params.items()})
    return path


def test_the_last_map_has_its_own_rate() -> None:
    assert site_rates(("a", "b", "last"), 0.25, 0.05) == {"a": 0.25, "b": 0.25, "last": 0.05}
    assert site_rates(("a", "map"), 0.25, 0.05, last_site="map") == {"a": 0.25, "map": 0.05}


def test_forty_steps_of_adadelta_equal_torchs_step_for_step() -> None:
    problem = tiny_problem()
    objective = inner_objective(problem.features, problem.task)
    update = Adadelta(site_rates(SITES, adapters=0.05, last=0.3))
    params, state = problem.start, update.init(problem.start)
    for expected in by_torch(torch.optim.Adadelta, 40):
        params, state = update.step(params, gradients(objective, params)[1], state)
        torch.testing.assert_close(params, expected, rtol=1e-12, atol=1e-14)
    assert (params["last"] - problem.start["last"]).abs().max() > 1e-3


def test_other_constants_of_adadelta_are_torchs_too() -> None:
    problem = tiny_problem()
    objective = inner_objective(problem.features, problem.task)
    ended = descend(objective, problem.start, Adadelta(RATES, rho=0.7, eps=1e-4), 10).params
    expected = by_torch(torch.optim.Adadelta, 10, rho=0.7, eps=1e-4)[-1]
    torch.testing.assert_close(ended, expected, rtol=1e-12, atol=1e-14)


def test_adadelta_can_be_fed_preconditioned_gradients() -> None:
    params = random_like(tiny_problem().start, seed=1)
    found = random_like(params, seed=2)
    doubled = {site: 2 * torch.eye(size, dtype=torch.float64) for site, size in SITES.items()}
    fed = Adadelta(RATES, preconditioner=doubled)
    plain = Adadelta(RATES)
    twice = {site: 2 * gradient for site, gradient in found.items()}
    moved, _ = fed.step(params, found, fed.init(params))
    expected, _ = plain.step(params, twice, plain.init(params))
    torch.testing.assert_close(moved, expected)


@pytest.mark.parametrize("factor", [1.0, 1.01, 3.0])
def test_a_multiple_of_the_identity_is_sgd_at_that_multiple_of_the_rate(factor: float) -> None:
    problem = tiny_problem()
    objective = inner_objective(problem.features, problem.task)
    scaled = {site: factor * torch.eye(size, dtype=torch.float64) for site, size in SITES.items()}
    ended = descend(objective, problem.start, Preconditioned(scaled, RATES), 12)
    faster = {site: factor * rate for site, rate in RATES.items()}
    torch.testing.assert_close(
        ended.params, descend(objective, problem.start, Preconditioned(None, faster), 12).params
    )
    if factor == 1.0:
        torch.testing.assert_close(ended.params, by_torch(torch.optim.SGD, 12)[-1], rtol=1e-12, atol=1e-14)


def test_one_preconditioned_step_is_the_papers_equation() -> None:
    params = random_like(tiny_problem().start, seed=3)
    found = random_like(params, seed=4)
    matrices = {
        s: torch.randn(m, m, dtype=torch.float64) for s, m in SITES.items()
    }  # even when not symmetric
    moved, _ = Preconditioned(matrices, RATES).step(params, found, None)
    for site in params:
        expected = params[site] - RATES[site] * matrices[site] @ found[site]
        torch.testing.assert_close(moved[site], expected)


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    name=st.sampled_from(["gram", "cholesky", "cholesky_identity", "low_rank", "bounded"]),
    way=st.integers(2, 6),
    shot=st.integers(2, 5),
)
def test_a_small_positive_definite_step_lowers_the_inner_loss(
    seed: int, name: str, way: int, shot: int
) -> None:
    problem = tiny_problem(seed, way=way, shot=shot)
    objective = inner_objective(problem.features, problem.task)
    shapes = {s: torch.empty(2 if name in FEW_ROWS else m, m).double() for s, m in SITES.items()}
    matrices = {s: DESIGNS[name](root) for s, root in random_like(shapes, seed).items()}
    before, found = gradients(objective, problem.start)
    slope = sum(float((found[s] * (matrices[s] @ found[s])).sum()) for s in SITES)
    assert slope > 0
    size = max(float((matrices[s] @ found[s]).norm()) for s in SITES)
    rate = 1e-4 / (1 + size)
    assume(rate * slope > 1e-11)  # a task that is solved already leaves nothing that float64 can show
    moved, _ = Preconditioned(matrices, site_rates(SITES, rate, rate)).step(problem.start, found, None)
    assert objective(moved) < before
    torch.testing.assert_close(float(before - objective(moved)), rate * slope, rtol=0.2, atol=1e-12)


def test_an_unconstrained_preconditioner_can_raise_the_inner_loss() -> None:
    problem = tiny_problem()
    objective = inner_objective(problem.features, problem.task)
    before, found = gradients(objective, problem.start)
    root = {s: torch.eye(m, dtype=torch.float64) for s, m in SITES.items()}
    for site, matrix in root.items():  # one negative eigenvalue, along the gradient's strongest direction
        direction = torch.linalg.svd(found[site]).U[:, 0]
        matrix -= 2 * torch.outer(direction, direction)
    matrices = {s: DESIGNS["free"](matrix) for s, matrix in root.items()}
    rates = site_rates(SITES, 1e-3, 1e-3)
    moved, _ = Preconditioned(matrices, rates).step(problem.start, found, None)
    assert objective(moved) > before
    tamed = {s: DESIGNS["gram"](matrix) for s, matrix in root.items()}
    moved, _ = Preconditioned(tamed, rates).step(problem.start, found, None)
    assert objective(moved) < before


def test_descend_keeps_no_graph_and_reports_the_losses_before_each_step() -> None:
    problem = tiny_problem()
    objective = inner_objective(problem.features, problem.task)
    update: Update[None] = Preconditioned(None, RATES)
    start = {site: param.clone().requires_grad_() for site, param in problem.start.items()}
    with torch.no_grad():
        ended = descend(objective, start, update, 5)
    assert not ended.losses.requires_grad
    assert all(not param.requires_grad and param.grad_fn is None for param in ended.params.values())
    assert all(torch.equal(start[site], problem.start[site]) for site in start)
    params, state = problem.start, None
    for loss in ended.losses:
        torch.testing.assert_close(loss, objective(params))
        params, state = update.step(params, gradients(objective, params)[1], state)
    torch.testing.assert_close(params, ended.params)
    assert ended.losses[-1] < ended.losses[0]


def test_no_steps_lead_nowhere() -> None:
    problem = tiny_problem()
    ended = descend(inner_objective(problem.features, problem.task), problem.start, Adadelta(RATES), 0)
    assert ended.losses.shape == (0,)
    assert all(torch.equal(ended.params[site], problem.start[site]) for site in SITES)


def test_a_site_that_the_objective_does_not_use_stays() -> None:
    params = {"used": torch.ones(2, 2), "idle": torch.ones(3, 3)}
    loss, found = gradients(lambda theta: theta["used"].square().sum(), params)
    assert loss == 4
    assert torch.equal(found["used"], 2 * torch.ones(2, 2))
    assert torch.equal(found["idle"], torch.zeros(3, 3))


def test_without_parameters_there_is_a_loss_and_nothing_moves() -> None:
    ended = descend(lambda theta: torch.tensor(3.0), {}, Adadelta({}), 2)
    assert ended.losses.tolist() == [3.0, 3.0]
    assert ended.params == {}
