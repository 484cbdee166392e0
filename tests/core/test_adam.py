"""Adam as an update rule gives torch's numbers."""

import torch

from fewshift.core.descent import descend
from fewshift.core.updates import Adam


def test_it_is_torchs_adam_step_for_step() -> None:
    generator = torch.Generator().manual_seed(0)
    start = {
        "a": torch.randn(3, 4, generator=generator, dtype=torch.float64),
        "b": torch.randn(2, generator=generator, dtype=torch.float64),
    }

    def loss(params: dict[str, torch.Tensor]) -> torch.Tensor:
        return params["a"].pow(4).sum() + (params["b"] - 1).square().sum() * params["a"].mean()

    weights = [value.clone().requires_grad_() for value in start.values()]
    theirs = torch.optim.Adam([{"params": weights[:1], "lr": 0.1}, {"params": weights[1:], "lr": 0.03}])
    for steps in range(1, 8):
        theirs.zero_grad()
        loss(dict(zip(start, weights, strict=True))).backward()
        theirs.step()
        ours = descend(loss, start, Adam({"a": 0.1, "b": 0.03}), steps).params
        for mine, other in zip(ours.values(), weights, strict=True):
            torch.testing.assert_close(mine, other.detach(), rtol=1e-12, atol=1e-12)
