from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_kits import shared_start

from fewshift.core.coefficients import task_coefficients
from fewshift.core.precond import (
    DESIGNS,
    LARGEST,
    DomainPreconditioners,
    blend,
    blend_sites,
    init_root,
    initial_preconditioners,
    part_of,
)
from fewshift.core.spectrum import (
    effective_rank,
    eigenvalues,
    largest_eigenvalue,
    largest_eigenvalue_estimate,
    non_pd_rate,
    smallest_eigenvalue,
)
from fewshift.core.starts import DomainStarts
from fewshift.errors import FewshiftError

ROUNDING = 1e-9


def random_roots(seed: int, domains: int, rows: int, size: int, scale: float) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return scale * torch.randn(domains, rows, size, generator=generator, dtype=torch.float64)


roots = st.builds(
    random_roots,
    seed=st.integers(0, 10**6),
    domains=st.integers(2, 8),
    rows=st.just(6),
    size=st.just(6),
    scale=st.sampled_from([0.0, 0.01, 0.1, 1.0, 4.0]),
)
wide_roots = st.builds(
    random_roots,
    seed=st.integers(0, 10**6),
    domains=st.integers(2, 8),
    rows=st.integers(1, 6),
    size=st.just(6),
    scale=st.sampled_from([0.0, 0.1, 4.0]),
)
logits = st.lists(st.floats(-30, 30), min_size=8, max_size=8)


@settings(max_examples=40, deadline=None)
@given(roots=roots, logits=logits, name=st.sampled_from(["gram", "cholesky_identity"]))
def test_designs_with_the_identity_and_their_blends_have_eigenvalues_of_at_least_one(
    roots: torch.Tensor, logits: list[float], name: str
) -> None:
    check_floor(DESIGNS[name](roots), logits, floor=1.0)


@settings(max_examples=40, deadline=None)
@given(roots=wide_roots, logits=logits)
def test_low_rank_and_its_blends_have_eigenvalues_of_at_least_one(
    roots: torch.Tensor, logits: list[float]
) -> None:
    matrices = DESIGNS["low_rank"](roots)
    check_floor(matrices, logits, floor=1.0)
    above = (eigenvalues(matrices) > 1 + 1e-6).sum(dim=-1)
    assert (above <= roots.shape[-2]).all()


@settings(max_examples=40, deadline=None)
@given(roots=wide_roots, logits=logits)
def test_bounded_and_its_blends_keep_their_eigenvalues_between_one_and_the_bound(
    roots: torch.Tensor, logits: list[float]
) -> None:
    matrices = DESIGNS["bounded"](roots)
    check_floor(matrices, logits, floor=1.0)
    learned = eigenvalues(DESIGNS["low_rank"](roots)) - 1
    expected = 1 + learned / (1 + learned / (LARGEST - 1))
    torch.testing.assert_close(eigenvalues(matrices), expected, rtol=1e-9, atol=1e-9)
    assert (largest_eigenvalue(matrices) < LARGEST).all()


@settings(max_examples=40, deadline=None)
@given(roots=roots, logits=logits)
def test_cholesky_and_its_blends_are_positive_definite(roots: torch.Tensor, logits: list[float]) -> None:
    check_floor(DESIGNS["cholesky"](roots), logits, floor=0.0)
    gentle = DESIGNS["cholesky"](roots / max(1.0, float(roots.abs().max())))  # so that rounding cannot hide 0
    assert (smallest_eigenvalue(gentle) > 0).all()
    coefficients = task_coefficients(torch.tensor(logits[: len(gentle)], dtype=torch.float64))
    assert smallest_eigenvalue(blend(coefficients, gentle)) > 0


@pytest.mark.parametrize("name", ["cholesky", "cholesky_identity"])
def test_cholesky_is_a_lower_triangular_matrix_times_its_transpose(name: str) -> None:
    root = random_roots(3, 1, 4, 4, 1.0)[0]
    lower = torch.zeros_like(root)
    for i in range(4):
        for j in range(i):
            lower[i, j] = root[i, j]
        lower[i, i] = torch.log1p(root[i, i].exp())
    wanted = lower @ lower.T + (torch.eye(4, dtype=root.dtype) if name.endswith("identity") else 0)
    torch.testing.assert_close(DESIGNS[name](root), wanted)


def check_floor(matrices: torch.Tensor, logits: list[float], floor: float) -> None:
    coefficients = task_coefficients(torch.tensor(logits[: len(matrices)], dtype=torch.float64))
    for candidate in (matrices, blend(coefficients, matrices)):
        slack = ROUNDING * float(candidate.abs().max() + 1)
        torch.testing.assert_close(candidate, candidate.mT, rtol=0, atol=slack)
        assert (smallest_eigenvalue(candidate) >= floor - slack).all()


@settings(max_examples=40, deadline=None)
@given(st.floats(0, 1), st.integers(0, 1000))
def test_part_of_a_preconditioner_is_positive_definite_too(share: float, seed: int) -> None:
    roots = random_roots(seed, 1, 4, 4, 1.0)[0]
    whole = {"a": roots.T @ roots + 1e-3 * torch.eye(4, dtype=roots.dtype)}
    found = part_of(whole, share)["a"]
    least = float(smallest_eigenvalue(whole["a"]))
    assert float(smallest_eigenvalue(found)) >= min(1.0, least) - ROUNDING
    torch.testing.assert_close(found, share * whole["a"] + (1 - share) * torch.eye(4, dtype=roots.dtype))


@pytest.mark.parametrize("logit", [-5.0, 0.0, 4.0])
def test_one_domains_sigmoid_lowers_the_floor_to_itself(logit: float) -> None:
    coefficients = task_coefficients(torch.tensor([logit], dtype=torch.float64))
    matrix = blend(coefficients, DESIGNS["gram"](random_roots(0, 1, 2, 6, 1.0)))  # rank 2: four ones remain
    torch.testing.assert_close(smallest_eigenvalue(matrix), torch.sigmoid(torch.tensor(logit).double()))


@pytest.mark.parametrize(
    ("name", "scale", "expected"),
    [
        ("gram", 0.1, 1.01),
        ("gram_only", 0.1, 0.01),
        ("cholesky", 0.1, 0.01),
        ("cholesky_identity", 0.1, 1.01),
        ("free", 0.1, 0.1),
        ("free", -1.0, -1.0),
        ("identity", 0.1, 1.0),
    ],
)
def test_initial_roots_give_multiples_of_the_identity(name: str, scale: float, expected: float) -> None:
    matrix = DESIGNS[name](init_root(name, 6, scale=scale, dtype=torch.float64))
    torch.testing.assert_close(matrix, expected * torch.eye(6, dtype=torch.float64))


def test_a_low_rank_root_starts_with_grams_mean_eigenvalue_and_off_the_saddle() -> None:
    generator = torch.Generator().manual_seed(3)
    root = init_root("low_rank", 64, rank=4, generator=generator, dtype=torch.float64)
    assert root.shape == (4, 64)
    torch.testing.assert_close(root @ root.T, 0.01 * 64 / 4 * torch.eye(4, dtype=torch.float64))
    matrix = DESIGNS["low_rank"](root)
    torch.testing.assert_close(matrix.trace().item(), 64 * 1.01)
    pull = torch.randn(64, 64, generator=generator, dtype=torch.float64)
    assert (root @ (pull + pull.T)).norm() > 0.05 * (pull + pull.T).norm()
    again = init_root("low_rank", 64, rank=4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    assert torch.equal(again, root)


@pytest.mark.parametrize("rank", [0, 9])
def test_an_impossible_rank_is_refused(rank: int) -> None:
    with pytest.raises(FewshiftError, match=f"rank {rank} is impossible for 8 channels"):
        init_root("low_rank", 8, rank=rank)


def test_designs_of_stacks_are_stacks_of_designs() -> None:
    stack = random_roots(1, 3, 5, 5, 1.0)
    for design in DESIGNS.values():
        torch.testing.assert_close(design(stack), torch.stack([design(root) for root in stack]))


def test_domain_preconditioners_index_blend_and_move() -> None:
    stacks = {"a": random_roots(0, 3, 4, 4, 1.0), "b": random_roots(1, 3, 2, 2, 1.0)}
    three = DomainPreconditioners(("x", "y", "z"), stacks, "gram")
    torch.testing.assert_close(three.of("y")["a"], stacks["a"][1].T @ stacks["a"][1] + torch.eye(4).double())
    for place, domain in enumerate(three.domains):
        assert three.index(domain) == place
        certain = torch.nn.functional.one_hot(torch.tensor(place), 3).double()
        for site, matrix in three.blend(certain).items():
            torch.testing.assert_close(matrix, three.of(domain)[site])
            torch.testing.assert_close(matrix, blend_sites(certain, three.matrices())[site])
    for name, design in DESIGNS.items():
        torch.testing.assert_close(replace(three, design=name).of("y")["a"], design(stacks["a"][1]))
    assert three.to("cpu", torch.float32).roots["a"].dtype == torch.float32
    assert three.roots["a"].dtype == torch.float64


def test_initial_preconditioners_do_not_depend_on_the_domain() -> None:
    made = initial_preconditioners(("x", "y"), {"a": 32, "b": 8}, "low_rank", rank=3)
    assert made.roots["a"].shape == (2, 3, 32)
    for site in made.roots:
        assert torch.equal(made.of("x")[site], made.of("y")[site])
        made.roots[site][0] += 1  # no memory is shared between domains
        assert not torch.equal(made.of("x")[site], made.of("y")[site])


def test_mistakes_are_named() -> None:
    with pytest.raises(FewshiftError, match="no preconditioner design 'cholsky': choose one of gram"):
        DomainPreconditioners(("x",), {}, "cholsky")
    with pytest.raises(FewshiftError, match=r"site 'a' have shape \(2, 3, 3\)"):
        DomainPreconditioners(("x",), {"a": torch.zeros(2, 3, 3)})
    with pytest.raises(FewshiftError, match="domain 'w': these were trained on x"):
        DomainPreconditioners(("x",), {"a": torch.zeros(1, 3, 3)}).of("w")
    with pytest.raises(FewshiftError, match="domain 'w': these were trained on x"):
        shared_start(("x",), {"a": torch.zeros(3, 3)}).of("w")
    with pytest.raises(FewshiftError, match="positive scale"):
        init_root("cholesky", 4, scale=-1.0)


def test_starting_values_blend_by_shares() -> None:
    start = {"a": torch.randn(3, 2, dtype=torch.float64)}
    shared = shared_start(("x", "y"), start)
    torch.testing.assert_close(shared.blend(torch.tensor([0.3, 0.7])), start)
    one = shared_start(("x",), start)
    torch.testing.assert_close(one.blend(torch.tensor([0.2])), start)
    stacked = DomainStarts(("x", "y"), {"a": torch.stack([start["a"], 3 * start["a"]])})
    torch.testing.assert_close(stacked.blend(torch.tensor([0.5, 0.5]))["a"], 2 * start["a"])
    torch.testing.assert_close(stacked.of("y")["a"], 3 * start["a"])
    assert stacked.to("cpu", torch.float32).values["a"].dtype == torch.float32


def test_effective_rank_counts_directions() -> None:
    torch.testing.assert_close(effective_rank(torch.eye(7).double()).item(), 7.0)
    assert effective_rank(torch.zeros(2, 3, 3)).tolist() == [0, 0]
    spread = torch.diag(torch.tensor([1.0, 1.0, 0.0, 0.0], dtype=torch.float64))
    torch.testing.assert_close(
        effective_rank(torch.stack([spread, 9 * spread])), torch.full((2,), 2.0).double()
    )
    shares = torch.tensor([0.6, 0.3, 0.1], dtype=torch.float64)
    turn = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64)).Q
    expected = torch.exp(-(shares * shares.log()).sum())
    torch.testing.assert_close(effective_rank(turn @ torch.diag(5 * shares) @ turn.T), expected)


def test_positive_definite_is_about_the_symmetric_part() -> None:
    turning = torch.tensor([[0.1, 5.0], [-5.0, 0.1]], dtype=torch.float64)  # xᵀPx = 0.1 |x|²
    shearing = torch.tensor([[1.0, 5.0], [0.0, 1.0]], dtype=torch.float64)  # eigenvalues 1, yet not PD
    torch.testing.assert_close(smallest_eigenvalue(turning).item(), 0.1)
    torch.testing.assert_close(smallest_eigenvalue(shearing).item(), -1.5)
    assert non_pd_rate({"a": turning, "b": shearing}) == 0.5
    assert non_pd_rate({"a": torch.stack([turning, turning, shearing, shearing]), "b": turning}) == 0.4
    assert non_pd_rate({"a": torch.zeros(3, 3)}) == 1.0


def test_power_iteration_finds_the_largest_eigenvalue_from_below() -> None:
    matrices = DESIGNS["gram"](random_roots(6, 4, 20, 20, 1.0))
    exact = largest_eigenvalue(matrices)
    assert (largest_eigenvalue_estimate(matrices) <= exact * (1 + 1e-12)).all()
    torch.testing.assert_close(largest_eigenvalue_estimate(matrices, 500), exact, rtol=1e-6, atol=0)
    torch.testing.assert_close(
        largest_eigenvalue_estimate(torch.eye(5)[None] * 1.01), torch.tensor([1.01]), rtol=1e-6, atol=0
    )


def test_power_iteration_is_not_misled_by_symmetry() -> None:
    matrix = torch.tensor([[2.0, -1.0], [-1.0, 2.0]], dtype=torch.float64)
    torch.testing.assert_close(largest_eigenvalue_estimate(matrix).item(), 3.0)
