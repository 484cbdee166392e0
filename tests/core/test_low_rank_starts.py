import pytest
import torch

from fewshift.core.starts import DomainStarts, LowRankStarts
from fewshift.errors import FewshiftError

DOMAINS = ("x", "y", "z")


def some_starts() -> LowRankStarts:
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(3, *s, generator=generator, dtype=torch.float64) for s in ((4, 2), (2, 5)))
    return LowRankStarts(DOMAINS, {"a": torch.eye(4, 5, dtype=torch.float64)}, {"a": left}, {"a": right})


@pytest.mark.parametrize("coefficients", [[0.2, 0.5, 0.3], [1.0, 0.0, 0.0], [0.4, 0.4, 0.4]])
def test_factors_blend_like_whole_values(coefficients: list[float]) -> None:
    starts, weights = some_starts(), torch.tensor(coefficients, dtype=torch.float64)
    whole = DomainStarts(DOMAINS, starts.values)
    torch.testing.assert_close(starts.blend(weights)["a"], whole.blend(weights)["a"], rtol=0, atol=1e-14)
    assert starts.shapes() == whole.shapes() == {"a": torch.Size([4, 5])}


def test_the_blend_carries_gradients_to_the_coefficients() -> None:
    starts = some_starts()
    weights = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64, requires_grad=True)
    whole = DomainStarts(DOMAINS, starts.values)
    found = [torch.autograd.grad(s.blend(weights)["a"].square().sum(), weights)[0] for s in (starts, whole)]
    torch.testing.assert_close(*found, rtol=0, atol=1e-12)


def test_shapes_that_do_not_multiply_are_refused() -> None:
    good = some_starts()
    with pytest.raises(FewshiftError, match=r"starting values of a .* do not multiply to \(3, 4, 5\)"):
        LowRankStarts(DOMAINS, good.base, good.left, {"a": good.right["a"][..., :4]})
