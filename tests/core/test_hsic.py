"""Kernels and HSIC against sums over all distinct tuples, in double precision."""

from itertools import permutations

import torch
from torch import Tensor

from fewshift.core.kernels import hsic, hsic_variance, median_above_zero, rbf_gram


def grams(size: int = 6) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    first, second = (torch.randn(size, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    return rbf_gram(first), rbf_gram(second + 0.5 * first, 0.7)


def over_four(k: Tensor, l: Tensor, i: int, j: int, q: int, r: int) -> float:  # noqa: E741
    """The kernel of the U-statistic at (i, j, q, r), averaged over the orders of its arguments."""
    terms = [float(k[s, t] * (l[s, t] + l[u, v] - 2 * l[s, u])) for s, t, u, v in permutations((i, j, q, r))]
    return sum(terms) / len(terms)


def test_the_gram_matrix_is_the_double_loop() -> None:
    features = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    squares = [[float((a - b).square().sum()) for b in features] for a in features]
    apart = sorted(value for row in squares for value in row if value > 0)
    width = apart[(len(apart) - 1) // 2]
    wanted = torch.tensor(squares, dtype=torch.float64).div(-2 * 0.3 * width).exp()
    torch.testing.assert_close(rbf_gram(features, 0.3), wanted, rtol=1e-12, atol=1e-12)


def test_several_bandwidths_at_once_are_each_one_alone() -> None:
    features = torch.randn(5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    several = rbf_gram(features, torch.tensor([0.1, 2.0], dtype=torch.float64))
    torch.testing.assert_close(several, torch.stack([rbf_gram(features, 0.1), rbf_gram(features, 2.0)]))


def test_the_median_leaves_zeros_out() -> None:
    assert median_above_zero(torch.tensor([0.0, 3.0, 0.0, 1.0, 2.0])) == 2
    assert median_above_zero(torch.zeros(3)) == 1


def test_hsic_is_the_mean_over_all_distinct_fours() -> None:
    left, right = grams()
    terms = [over_four(left, right, *four) for four in permutations(range(6), 4)]
    torch.testing.assert_close(float(hsic(left, right)), sum(terms) / len(terms), rtol=1e-10, atol=1e-12)


def test_its_variance_is_that_of_the_first_projection() -> None:
    left, right = grams()
    squares = []
    for i in range(6):
        others = [over_four(left, right, i, *three) for three in permutations(set(range(6)) - {i}, 3)]
        squares.append((sum(others) / len(others)) ** 2)
    wanted = 16 / 6 * (sum(squares) / 6 - float(hsic(left, right)) ** 2)
    torch.testing.assert_close(float(hsic_variance(left, right)), wanted, rtol=1e-9, atol=1e-12)


def test_a_constant_kernel_depends_on_nothing() -> None:
    """Labels of one image a class: all are equally far apart."""
    left, _ = grams()
    constant = torch.full_like(left, 0.3).fill_diagonal_(1.0)
    assert abs(float(hsic(left, constant))) < 1e-15


def test_gradients_are_right() -> None:
    labels = torch.tensor([0, 0, 1, 1, 2, 2])
    wanted = rbf_gram(torch.nn.functional.one_hot(labels).double())
    features = torch.randn(6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(3))

    def dependence(values: Tensor) -> Tensor:
        # the median is a constant of the gradient, so it is kept while values change
        distances = torch.cdist(values, values).square()
        return hsic(torch.exp(-distances / 2), wanted)

    assert torch.autograd.gradcheck(dependence, features.requires_grad_())


def test_the_largest_task_there_is_has_a_variance() -> None:
    features = torch.randn(500, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    same = (torch.arange(500)[:, None] % 5 == torch.arange(500) % 5).double()
    assert 0 < float(hsic_variance(rbf_gram(features, torch.tensor(1.0)), same)) < 1
