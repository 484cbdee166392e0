"""r explicit adapters a site, averaged, are the one matrix that they collapse to."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tiny_problem import Problem, tiny_problem
from torch import Tensor

from fewshift.core.descent import descend
from fewshift.core.losses import inner_objective
from fewshift.core.parallel import (
    collapsed_adadelta,
    collapsed_descent,
    shared_rates,
    with_adapters,
    without_effect,
)
from fewshift.core.updates import Preconditioned
from fewshift.types import TaskParams

STEPS = 40
RATES = {"first": 0.5, "second": 0.3, "last": 0.2}
CONFIGURATIONS = [(1, 1), (2, 1), (3, 2), (0, 3), (3, 3)]


def counts_of(configuration: tuple[int, int]) -> dict[str, int]:
    return dict(zip(("first", "second"), configuration, strict=True))


def copies_of(start: TaskParams, counts: dict[str, int]) -> TaskParams:
    return {f"{site} {j}": value.clone() for site, value in start.items() for j in range(counts.get(site, 1))}


def averaged(copies: TaskParams, start: TaskParams, counts: dict[str, int]) -> TaskParams:
    """What the network computes with: the mean of a site's adapters, nothing where there is none."""

    def of(site: str) -> Tensor:
        own = [copies[f"{site} {j}"] for j in range(counts.get(site, 1))]
        return torch.stack(own).mean(dim=0) if own else torch.zeros_like(start[site])

    return {site: of(site) for site in start}


def explicit_objective(problem: Problem, counts: dict[str, int]) -> Callable[[TaskParams], Tensor]:
    inside = inner_objective(problem.features, problem.task)
    return lambda copies: inside(averaged(copies, problem.start, counts))


def preconditioners(problem: Problem) -> TaskParams:
    generator = torch.Generator().manual_seed(5)
    roots = {
        site: 0.3 * torch.randn(len(value), len(value), generator=generator, dtype=value.dtype)
        for site, value in problem.start.items()
    }
    return {site: root.T @ root + torch.eye(len(root), dtype=root.dtype) for site, root in roots.items()}


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_copies_under_preconditioned_descent_are_one_matrix_with_a_step_divided_by_r(
    configuration: tuple[int, int],
) -> None:
    problem, counts = tiny_problem(), counts_of(configuration)
    matrices = preconditioners(problem)
    copies = copies_of(problem.start, counts)
    rule = Preconditioned(
        {name: matrices[name.split()[0]] for name in copies},
        {name: RATES[name.split()[0]] for name in copies},
    )
    explicit = descend(explicit_objective(problem, counts), copies, rule, STEPS)

    start = without_effect(problem.start, counts)
    one = descend(
        inner_objective(problem.features, problem.task),
        start,
        collapsed_descent(matrices, RATES, counts),
        STEPS,
    )
    torch.testing.assert_close(explicit.losses, one.losses, rtol=1e-11, atol=0)
    for name, value in explicit.params.items():
        torch.testing.assert_close(value, one.params[name.split()[0]], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_copies_under_torch_adadelta_are_one_matrix_that_sees_its_gradient_divided_by_r(
    configuration: tuple[int, int],
) -> None:
    problem, counts = tiny_problem(), counts_of(configuration)
    objective = explicit_objective(problem, counts)
    copies = {name: value.requires_grad_() for name, value in copies_of(problem.start, counts).items()}
    optimizer = torch.optim.Adadelta([{"params": [c], "lr": RATES[n.split()[0]]} for n, c in copies.items()])
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = objective(copies)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())

    start = without_effect(problem.start, counts)
    one = descend(
        inner_objective(problem.features, problem.task),
        start,
        collapsed_adadelta(start, RATES, counts),
        STEPS,
    )
    torch.testing.assert_close(torch.stack(losses), one.losses, rtol=1e-10, atol=0)
    for name, value in copies.items():
        torch.testing.assert_close(value.detach(), one.params[name.split()[0]], rtol=1e-8, atol=1e-11)


def test_the_copies_themselves_never_differ_by_a_bit() -> None:
    problem, counts = tiny_problem(), counts_of((3, 2))
    copies = copies_of(problem.start, counts)
    rule = Preconditioned(None, {name: RATES[name.split()[0]] for name in copies})
    found = descend(explicit_objective(problem, counts), copies, rule, STEPS).params
    assert torch.equal(found["first 0"], found["first 1"])
    assert torch.equal(found["first 0"], found["first 2"])
    assert not torch.equal(found["first 0"], problem.start["first"])


def test_dividing_adadeltas_rate_instead_would_be_another_method() -> None:
    problem, counts = tiny_problem(), counts_of((3, 3))
    inside = inner_objective(problem.features, problem.task)
    rule = collapsed_adadelta(problem.start, RATES, counts)
    divided = collapsed_adadelta(problem.start, shared_rates(RATES, counts), {})
    right, wrong = (descend(inside, problem.start, r, STEPS).params["first"] for r in (rule, divided))
    assert (right - wrong).abs().max() > 1e-3


def test_no_adapter_is_neither_in_the_parameters_nor_moved() -> None:
    problem, counts = tiny_problem(), counts_of((0, 2))
    assert list(with_adapters(problem.start, counts)) == ["second", "last"]
    start = without_effect(problem.start, counts)
    assert not start["first"].any()
    assert torch.equal(start["second"], problem.start["second"])
    assert shared_rates(RATES, counts) == {"first": 0.0, "second": 0.15, "last": 0.2}
    for rule in (collapsed_descent(None, RATES, counts), collapsed_adadelta(start, RATES, counts)):
        moved = descend(inner_objective(problem.features, problem.task), start, rule, 3).params
        assert not moved["first"].any()
        assert not torch.equal(moved["second"], start["second"])
