import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fewshift.nets import winograd
from fewshift.nets.adapters import add_to_centre

SIZES = [(1, 1), (2, 2), (3, 5), (6, 6), (11, 11), (8, 21)]


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


@pytest.mark.parametrize("size", SIZES)
def test_it_is_a_convolution(size: tuple[int, int]) -> None:
    x, kernel, bias = random(2, 5, *size), random(7, 5, 3, 3), random(7)
    direct = F.conv2d(x, kernel, bias, padding=1)
    found = winograd.convolve(x.permute(0, 2, 3, 1), winograd.transformed(kernel), bias)
    torch.testing.assert_close(found.permute(0, 3, 1, 2), direct, rtol=0, atol=1e-12)
    assert found.is_contiguous()


@pytest.mark.parametrize("size", SIZES)
def test_its_gradient(size: tuple[int, int]) -> None:
    x, kernel, delta = random(2, 5, *size).requires_grad_(), random(7, 5, 3, 3), random(2, 7, *size)
    (direct,) = torch.autograd.grad(F.conv2d(x, kernel, padding=1), x, delta)
    found = winograd.input_gradient(delta.permute(0, 2, 3, 1), winograd.transformed(kernel))
    torch.testing.assert_close(found.permute(0, 3, 1, 2), direct, rtol=0, atol=1e-12)


def test_an_adapter_reaches_four_matrices() -> None:
    kernel, adapter = random(7, 5, 3, 3), random(7, 5)
    base = winograd.transformed(kernel)
    target = base.clone()
    for _ in range(2):  # setting is not adding
        winograd.set_centre_(target[1:3, 1:3], base[1:3, 1:3], adapter)
    torch.testing.assert_close(
        target, winograd.transformed(add_to_centre(kernel, adapter)), rtol=0, atol=1e-14
    )


def test_single_precision_is_as_good_as_direct() -> None:
    x, kernel = random(4, 256, 11, 11), random(256, 256, 3, 3) / 48
    exact = F.conv2d(x, kernel, padding=1)
    narrow = winograd.transformed(kernel.float())
    found = winograd.convolve(x.float().permute(0, 2, 3, 1).contiguous(), narrow, torch.zeros(256))
    error = (found.permute(0, 3, 1, 2) - exact).abs().max() / exact.abs().max()
    assert error < 2e-6
