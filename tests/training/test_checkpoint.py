"""States that a run goes on from, to the bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fewshift.errors import FewshiftError
from fewshift.training.checkpoint import (
    copy_into,
    optimizer_tensors,
    restore_optimizer,
)


@pytest.mark.parametrize(
    "make", [lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), lambda p: torch.optim.Adam(p, 0.1)]
)
def test_optimizers_go_on_to_the_same_bits(
    make: Callable[..., torch.optim.Optimizer], tmp_path: Path
) -> None:
    def steps(weights: dict[str, Tensor], optimizer: torch.optim.Optimizer, numbers: range) -> None:
        for number in numbers:
            for place, weight in enumerate(weights.values()):
                weight.grad = torch.sin(weight + number) if (place + number) % 3 else None
            optimizer.step()

    names = ["a", "b", "c.d"]
    whole = {name: torch.full((2,), float(i)) for i, name in enumerate(names)}
    optimizer = make(list(whole.values()))
    steps(whole, optimizer, range(4))
    kept = {**{f"w|{k}": v.clone() for k, v in whole.items()}}
    saved = {k: v.clone() for k, v in optimizer_tensors(optimizer, names).items()}
    steps(whole, optimizer, range(4, 9))

    again = {name: torch.zeros(2) for name in names}
    copy_into(again, {k.removeprefix("w|"): v for k, v in kept.items()})
    resumed = make(list(again.values()))
    restore_optimizer(resumed, names, saved)
    steps(again, resumed, range(4, 9))
    assert all(torch.equal(whole[name], again[name]) for name in names)


def test_a_state_that_does_not_fit_is_refused() -> None:
    with pytest.raises(FewshiftError, match="does not fit this run: b, c"):
        copy_into({"a": torch.zeros(1), "b": torch.zeros(1)}, {"a": torch.zeros(1), "c": torch.zeros(1)})
