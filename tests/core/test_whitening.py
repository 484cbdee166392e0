"""The preconditioner of the inputs: positive definite, of the size of a plain step, and what it is for."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fewshift.core.updates import Preconditioned, TwoSided
from fewshift.core.whitening import second_moment, whitener


def rows(seed: int, count: int, channels: int) -> Tensor:
    """Inputs as they leave a ReLU, some channels much larger than others."""
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.logspace(-2, 1, channels, dtype=torch.float64)
    return torch.randn(count, channels, generator=generator, dtype=torch.float64).relu() * sizes


@settings(deadline=None)
@given(
    seed=st.integers(0, 10**6),
    count=st.integers(1, 40),
    channels=st.integers(1, 20),
    damping=st.floats(1e-3, 10),
)
def test_it_is_positive_definite_and_keeps_the_size_of_a_step(
    seed: int, count: int, channels: int, damping: float
) -> None:
    moment = second_moment(rows(seed, count, channels))
    found = whitener(moment, damping)
    torch.testing.assert_close(found, found.mT)
    assert torch.linalg.eigvalsh(found).min() > 0
    if moment.trace() > 0:
        torch.testing.assert_close((found @ moment).trace(), moment.trace())
        torch.testing.assert_close(whitener(1e4 * moment, damping), found)  # no matter in what unit


def test_it_is_the_damped_inverse() -> None:
    moment = second_moment(rows(0, 50, 6))
    level = 0.3 * moment.trace() / 6
    inverse = torch.linalg.inv(moment + level * torch.eye(6, dtype=torch.float64))
    torch.testing.assert_close(whitener(moment), inverse * moment.trace() / (inverse @ moment).trace())
    assert torch.equal(whitener(torch.zeros(6, 6)), torch.eye(6))  # nothing was read


def test_little_damping_makes_the_inputs_white() -> None:
    inputs = rows(1, 400, 5)
    evened = inputs @ torch.linalg.cholesky(whitener(second_moment(inputs), 1e-9))
    moment = second_moment(evened)
    torch.testing.assert_close(moment / moment[0, 0], torch.eye(5, dtype=torch.float64), atol=1e-3, rtol=0)


def test_much_damping_is_plain_descent() -> None:
    found = whitener(second_moment(rows(2, 30, 4)), 1e8)
    torch.testing.assert_close(found, torch.eye(4, dtype=torch.float64), atol=1e-3, rtol=0)


@pytest.mark.parametrize("with_p", [True, False])
def test_a_step_has_one_matrix_on_each_side(with_p: bool) -> None:
    generator = torch.Generator().manual_seed(3)
    p, q, theta, gradient = (torch.randn(*s, generator=generator) for s in ((3, 3), (5, 5), (3, 5), (3, 5)))
    left = {"a": p} if with_p else None
    moved, _ = TwoSided(left, {"a": q}, {"a": 0.1}).step({"a": theta}, {"a": gradient}, None)
    wanted = theta - 0.1 * (p if with_p else torch.eye(3)) @ gradient @ q
    torch.testing.assert_close(moved["a"], wanted)
    plain, _ = TwoSided(left, {"a": torch.eye(5)}, {"a": 0.1}).step({"a": theta}, {"a": gradient}, None)
    one_sided, _ = Preconditioned(left, {"a": 0.1}).step({"a": theta}, {"a": gradient}, None)
    torch.testing.assert_close(plain["a"], one_sided["a"])
