"""Learned update rules: each is plain descent at its neutral values, and what it says elsewhere."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fewshift.core.centroids import prototypes
from fewshift.core.descent import descend, unroll
from fewshift.core.gap import (
    START,
    DiagonalAdaptive,
    GradientAdaptive,
    by_eigenvectors,
    by_svd,
    factors,
    rescaled,
    unfolded,
)
from fewshift.core.meta_updates import ElementwiseRates, Generated, ModeProducts
from fewshift.core.proto_head import BIAS, WEIGHT, head_logits, proto_head
from fewshift.core.rules import RULES, Shape
from fewshift.core.updates import Preconditioned
from fewshift.types import TaskParams

GENERATOR = torch.Generator().manual_seed(0)


@pytest.fixture(autouse=True)
def _the_same_numbers_in_any_order() -> None:
    GENERATOR.manual_seed(1)


def drawn(*size: int) -> Tensor:
    return torch.randn(size, generator=GENERATOR, dtype=torch.float64)


KERNELS = {
    "wide.weight": drawn(4, 3, 3, 3),
    "tall.weight": drawn(6, 2, 1, 1),
    "square.weight": drawn(4, 4, 1, 1),
}
START_PARAMS: TaskParams = {**KERNELS, WEIGHT: drawn(5, 7), BIAS: drawn(5)}
TARGET = {name: drawn(*value.shape) for name, value in START_PARAMS.items()}
SHAPE = Shape(KERNELS, dim=7, rate=0.05, steps=3)


def objective(params: TaskParams) -> Tensor:
    """Neither quadratic nor separable."""
    terms = [(value - TARGET[name]).square().sum() for name, value in params.items()]
    return torch.stack(terms).sum() + 0.1 * torch.stack([v.sin().sum() for v in params.values()]).prod()


def plain(steps: int = 3) -> TaskParams:
    rule = Preconditioned(None, dict.fromkeys(START_PARAMS, SHAPE.rate))
    return descend(objective, START_PARAMS, rule, steps).params


def assert_same(ours: TaskParams, theirs: TaskParams, close: float = 1e-12) -> None:
    for name, value in ours.items():
        torch.testing.assert_close(value, theirs[name], rtol=close, atol=close)


@pytest.mark.parametrize(("name", "close"), [("sgd", 1e-12), ("meta-sgd", 1e-12), ("meta-curvature", 1e-12)])
def test_untrained_rules_are_plain_descent(name: str, close: float) -> None:
    rule = RULES[name]
    made = rule.make(rule.start(SHAPE, torch.Generator()), SHAPE)
    assert_same(descend(objective, START_PARAMS, made, 3).params, plain(), close)


@pytest.mark.parametrize("name", ["gap", "gap-approximate"])
def test_untrained_gap_is_nearly_plain_descent(name: str) -> None:
    rule = RULES[name]
    learned = rule.start(SHAPE, torch.Generator())
    assert set(learned) == set(KERNELS)
    assert float(factors(learned["wide.weight"]).max()) == pytest.approx(1.0006, abs=1e-4)
    assert_same(descend(objective, START_PARAMS, rule.make(learned, SHAPE), 3).params, plain(), 2e-3)


def test_alfa_with_rates_one_and_decays_zero_is_plain_descent() -> None:
    learned = RULES["alfa"].start(SHAPE, torch.Generator())
    layers = len(START_PARAMS)
    neutral = torch.cat([torch.ones(layers), torch.zeros(layers)]).double()
    rule = Generated({**learned, "out.bias": neutral}, learned["rates"], learned["decays"])
    assert_same(descend(objective, START_PARAMS, rule, 5).params, plain(5))


def test_alfa_untrained_is_descent_with_weight_decay() -> None:
    learned = RULES["alfa"].start(SHAPE, torch.Generator())
    found, _ = RULES["alfa"].make(learned, SHAPE).step(START_PARAMS, TARGET, 0)
    wanted = {n: (1 - 0.05 * 5e-4) * p - 0.05 * TARGET[n] for n, p in START_PARAMS.items()}
    assert_same(found, wanted)


def test_alfa_reads_means_and_steps() -> None:
    """Every tensor's rate and decay by hand, at the last step that has values of its own and after it."""
    layers = len(START_PARAMS)
    net = {"hidden.weight": drawn(2 * layers, 2 * layers), "hidden.bias": drawn(2 * layers)}
    net |= {"out.weight": drawn(2 * layers, 2 * layers), "out.bias": drawn(2 * layers)}
    rates, decays = drawn(3, layers), drawn(3, layers)
    state = torch.stack([t.mean() for t in (*START_PARAMS.values(), *TARGET.values())])
    out = net["out.weight"] @ (net["hidden.weight"] @ state + net["hidden.bias"]).relu() + net["out.bias"]
    for step in (2, 9):
        found, after = Generated(net, rates, decays).step(START_PARAMS, TARGET, step)
        assert after == step + 1
        for layer, name in enumerate(START_PARAMS):
            kept = 1 - out[layers + layer] * decays[2, layer]
            wanted = kept * START_PARAMS[name] - out[layer] * rates[2, layer] * TARGET[name]
            torch.testing.assert_close(found[name], wanted)


def test_meta_sgd_multiplies_number_by_number() -> None:
    rates = {n: drawn(*v.shape) for n, v in KERNELS.items()} | {WEIGHT: drawn(7), BIAS: drawn()}
    found, _ = ElementwiseRates(rates).step(START_PARAMS, TARGET, None)
    assert_same(found, {n: p - rates[n] * TARGET[n] for n, p in START_PARAMS.items()})


def test_meta_curvature_is_a_kronecker_product() -> None:
    site, (out, inside) = "wide.weight", (4, 3)
    products = {f"{site}|outputs": drawn(out, out), f"{site}|inputs": drawn(inside, inside)}
    products[f"{site}|positions"] = drawn(9, 9)
    found, _ = ModeProducts(products, 0.05).step({site: KERNELS[site]}, {site: TARGET[site]}, None)
    whole = torch.kron(
        torch.kron(products[f"{site}|outputs"], products[f"{site}|inputs"]), products[f"{site}|positions"]
    )
    wanted = KERNELS[site] - 0.05 * (whole.T @ TARGET[site].flatten()).view_as(KERNELS[site])
    torch.testing.assert_close(found[site], wanted)


@pytest.mark.parametrize("site", sorted(KERNELS))
def test_gap_rescales_singular_values_in_order(site: str) -> None:
    matrix = unfolded(TARGET[site])
    scales = torch.linspace(2.0, 0.5, min(matrix.shape), dtype=torch.float64)
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    assert values[0] > values[-1]
    for basis in (by_svd, by_eigenvectors):
        found = rescaled(matrix, basis([matrix])[0], scales)
        torch.testing.assert_close(found, left @ torch.diag(values * scales) @ right)


@pytest.mark.parametrize("site", sorted(KERNELS))
def test_the_derivative_holds_the_left_vectors_constant(site: str) -> None:
    """Also for a tall matrix, whose basis are the right ones: the published step is U diag(s) Uᵀ G."""
    matrix = unfolded(TARGET[site]).requires_grad_()
    scales = torch.linspace(2.0, 0.5, min(matrix.shape), dtype=torch.float64).requires_grad_()
    left = torch.linalg.svd(matrix.detach(), full_matrices=False)[0]
    outside = drawn(*matrix.shape)
    published = left @ torch.diag(scales) @ left.T @ matrix
    wanted = torch.autograd.grad((published * outside).sum(), [matrix, scales])
    for basis in (by_svd, by_eigenvectors):
        step = rescaled(matrix, basis([matrix.detach()])[0], scales)
        torch.testing.assert_close(step, published)
        torch.testing.assert_close(torch.autograd.grad((step * outside).sum(), [matrix, scales]), wanted)


def test_the_eigen_form_takes_the_same_steps_as_the_svd() -> None:
    logits = {name: drawn(min(unfolded(value).shape)) for name, value in KERNELS.items()}
    by = {basis: GradientAdaptive(logits, 0.05, basis) for basis in (by_svd, by_eigenvectors)}
    ends = [descend(objective, START_PARAMS, rule, 5).params for rule in by.values()]
    assert_same(ends[0], ends[1], 1e-9)
    assert not torch.allclose(ends[0]["wide.weight"], plain(5)["wide.weight"], atol=1e-2)


def test_gap_on_a_gradient_of_low_rank_and_on_none() -> None:
    """Vectors of zero singular values are arbitrary, and do not matter."""
    thin = drawn(4, 1) @ drawn(1, 27)
    for matrix in (thin, torch.zeros(4, 27, dtype=torch.float64)):
        scales = torch.tensor([2.0, 1.0, 0.7, 0.1], dtype=torch.float64)
        for basis in (by_svd, by_eigenvectors):
            torch.testing.assert_close(rescaled(matrix, basis([matrix])[0], scales), 2 * matrix)


def test_gap_knows_directions_of_gradients_whose_squares_vanish() -> None:
    matrix = drawn(4, 27).float()
    scales = torch.tensor([2.0, 1.0, 0.7, 0.1])
    wanted = rescaled(matrix, by_eigenvectors([matrix])[0], scales)
    small = 1e-25 * matrix  # 1e-50 is no number in single precision
    found = rescaled(small, by_eigenvectors([small])[0], scales)
    torch.testing.assert_close(1e25 * found, wanted, rtol=1e-4, atol=1e-4)


def test_gap_goes_on_where_a_solver_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a GPU's does now and then in single precision, after hundreds of updates."""
    matrix, solve = drawn(4, 27).float(), torch.linalg.eigh
    wanted = by_eigenvectors([matrix])[0]

    def stubborn(grams: torch.Tensor) -> object:
        if grams.dtype == torch.float32:
            raise torch.linalg.LinAlgError("the algorithm failed to converge")  # type: ignore[attr-defined]
        return solve(grams)

    monkeypatch.setattr(torch.linalg, "eigh", stubborn)
    found = by_eigenvectors([matrix])[0]
    assert found.dtype == torch.float32
    torch.testing.assert_close((found.T @ wanted).abs(), torch.eye(4), rtol=0, atol=1e-4)


def test_a_gradient_that_is_not_finite_shows_in_the_step() -> None:
    bad = {**TARGET, "wide.weight": torch.full_like(TARGET["wide.weight"], torch.nan)}
    rule = GradientAdaptive({"wide.weight": torch.full((4,), START).double()}, 0.05)
    moved, _ = rule.step(START_PARAMS, bad, None)
    assert moved["wide.weight"].isnan().all()


def test_gap_does_not_know_channels_and_its_approximation_does() -> None:
    """Permuting output channels permutes GAP's step; the diagonal is tied to places."""
    site, order = "wide.weight", torch.tensor([2, 0, 3, 1])
    logits, params = {site: drawn(4)}, {site: torch.zeros(4, 3, 3, 3, dtype=torch.float64)}
    for rule, same in ((GradientAdaptive(logits, 1.0), True), (DiagonalAdaptive(logits, 1.0), False)):
        straight = rule.step(params, {site: TARGET[site]}, None)[0][site][order]
        permuted = rule.step(params, {site: TARGET[site][order]}, None)[0][site]
        assert torch.allclose(straight, permuted) == same


@pytest.mark.parametrize("name", [name for name in RULES if name != "sgd"])
@pytest.mark.parametrize("order", [1, 2])
def test_gradients_of_what_a_rule_learns(name: str, order: int) -> None:
    """At order 2 they are those of finite differences; at order 1 after one step, too.

    GAP's vectors and ALFA's state are constants of the gradient (confirmed from code), so for those two only
    the first step can be compared.
    """
    rule = RULES[name]
    steps = 2 if order == 2 and name not in {"gap", "alfa"} else 1
    first = rule.start(SHAPE, torch.Generator().manual_seed(0))
    first = {key: value + 0.01 * drawn(*value.shape) for key, value in first.items()}

    def outer(learned: dict[str, Tensor]) -> Tensor:
        end = unroll(objective, START_PARAMS, rule.make(learned, SHAPE), steps, order)  # type: ignore[arg-type]
        return torch.stack([(v * TARGET[n]).sum().sin() for n, v in end.params.items()]).sum()

    leaves = {key: value.clone().requires_grad_() for key, value in first.items()}
    found = torch.autograd.grad(outer(leaves), list(leaves.values()), materialize_grads=True)
    direction = {key: drawn(*value.shape) for key, value in first.items()}
    slope = sum(float((g * direction[k]).sum()) for k, g in zip(first, found, strict=True))
    ends = [
        float(outer({k: v + s * 1e-5 * direction[k] for k, v in first.items()}).detach()) for s in (1, -1)
    ]
    assert slope == pytest.approx((ends[0] - ends[1]) / 2e-5, rel=1e-5, abs=1e-6)


def test_the_start_gets_the_whole_gradient_at_order_two() -> None:
    rule = Preconditioned(None, dict.fromkeys(START_PARAMS, 0.05))

    def outer(start: TaskParams) -> Tensor:
        return objective(unroll(objective, start, rule, 3, order=2).params)

    leaves = {name: value.clone().requires_grad_() for name, value in START_PARAMS.items()}
    found = torch.autograd.grad(outer(leaves), list(leaves.values()))
    direction = {name: drawn(*value.shape) for name, value in START_PARAMS.items()}
    slope = sum(float((g * direction[k]).sum()) for k, g in zip(direction, found, strict=True))
    ends = [
        float(
            outer(
                {k: (v + s * 1e-6 * direction[k]).requires_grad_() for k, v in START_PARAMS.items()}
            ).detach()
        )
        for s in (1, -1)
    ]
    assert slope == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-5)


def test_the_head_starts_as_squared_distance_to_centroids() -> None:
    features, labels = drawn(9, 4), torch.arange(9) % 3
    queries = drawn(5, 4)
    logits = head_logits(proto_head(features, labels, 3), queries)
    distances = (queries[:, None] - prototypes(features, labels, 3)[None]).square().sum(-1)
    torch.testing.assert_close(logits.log_softmax(1), (-distances).log_softmax(1))
