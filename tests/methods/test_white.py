"""Descent whitened by the support set's inputs: by all of it, by a part of it, and by none of it."""

from dataclasses import replace

import pytest
import torch
from small_kits import kit_with_starts

from fewshift.methods import METHODS
from fewshift.nets.kit import Kit
from fewshift.types import Labelled, Task

PAIRS = {"seen": [0.3, 0.1], "unseen": [0.3, 0.1]}


@pytest.fixture(scope="module")
def task() -> Task:
    torch.manual_seed(2)
    return Task(Labelled(torch.randn(6, 3, 28, 28), torch.tensor([0, 0, 1, 1, 2, 2])), way=3)


def with_share(share: float) -> Kit:
    """A kit whose validation chose this share, for domains of either kind."""
    shares = {name: {"seen": share, "unseen": share} for name in ("white", "start_white")}
    rates = dict.fromkeys(("gd", "start", *shares), PAIRS)
    return kit_with_starts(("birds", "cars")).with_(info={"rates": rates, "whitening_shares": shares})


def logits(kit: Kit, name: str, task: Task) -> torch.Tensor:
    method = replace(METHODS[name](kit), steps=3)  # type: ignore[type-var]
    return method.adapt(task)(task.support.images)


@pytest.mark.parametrize(("name", "plain"), [("white", "gd"), ("start_white", "start")])
def test_validation_says_how_much_a_tuned_method_whitens(name: str, plain: str, task: Task) -> None:
    none, half, whole = (logits(with_share(share), f"{name}_tuned", task) for share in (0.0, 0.5, 1.0))
    assert torch.equal(none, logits(with_share(0.0), f"{plain}_tuned", task))
    assert not torch.allclose(none, half)
    assert not torch.allclose(half, whole)


def test_a_kit_that_says_nothing_of_it_takes_all(task: Task) -> None:
    whole = with_share(1.0)
    silent = whole.with_(info={"rates": whole.info["rates"]})
    assert torch.equal(logits(whole, "white_tuned", task), logits(silent, "white_tuned", task))
