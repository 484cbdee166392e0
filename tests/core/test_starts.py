"""Starting values blend by shares that are numbers, whatever the dataset classifier says."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fewshift.core.coefficients import task_coefficients
from fewshift.core.starts import DomainStarts, LowRankStarts, Starts

VALUES = torch.arange(24, dtype=torch.float64).view(4, 2, 3)
LOGITS = st.floats(-1e4, 1e4)  # a sigmoid of float64 is 0 from -746 down


def both_kinds(count: int) -> tuple[Starts, Starts]:
    """The same starting values of so many domains, whole and as factors."""
    domains, base = tuple("wxyz"[:count]), {"a": torch.ones(2, 3, dtype=torch.float64)}
    left = torch.eye(2, dtype=torch.float64).expand(count, 2, 2)
    factors = LowRankStarts(domains, base, {"a": left}, {"a": VALUES[:count] - 1})
    return DomainStarts(domains, {"a": VALUES[:count]}), factors


@settings(deadline=None)
@given(st.lists(LOGITS, min_size=1, max_size=4))
def test_a_blend_lies_between_the_domains_and_has_a_finite_gradient(logits: list[float]) -> None:
    for starts in both_kinds(len(logits)):
        asked = torch.tensor(logits, dtype=torch.float64, requires_grad=True)
        found = starts.blend(task_coefficients(asked))["a"]
        own = VALUES[: len(logits)]
        assert (found >= own.amin(0) - 1e-9).all()
        assert (found <= own.amax(0) + 1e-9).all()
        (gradient,) = torch.autograd.grad(found.square().sum(), asked)
        assert gradient.isfinite().all()


@settings(deadline=None)
@given(LOGITS)
def test_one_domain_gives_its_own_values_exactly(logit: float) -> None:
    for starts in both_kinds(1):
        for dtype in (torch.float32, torch.float64):
            certain = task_coefficients(torch.tensor([logit], dtype=dtype))
            torch.testing.assert_close(starts.blend(certain)["a"], VALUES[0], rtol=0, atol=0)
