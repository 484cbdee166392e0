"""The dataset classifier reads a support set where somebody asks for its answer, and not elsewhere."""

import copy

import pytest
import torch

from fewshift.methods import METHODS
from fewshift.nets.kit import Kit
from fewshift.types import Labelled, Task

FOR_RATES = ("pa", "tsa", "gd", "gd_tuned", "tsp_untrained", "white_tuned", "ta2")


def passes(kit: Kit, name: str, oracle: bool) -> int:
    """How often the classifier runs while this method adapts to one task."""
    classifier, seen = copy.deepcopy(kit.classifier), []
    assert classifier is not None
    classifier.register_forward_hook(lambda *_: seen.append(1))
    method = METHODS[name](kit.with_(classifier=classifier), oracle=oracle)
    labels = torch.arange(6) % 3
    images = torch.randn(6, 3, 28, 28, generator=torch.Generator().manual_seed(0))
    method.adapt(Task(Labelled(images, labels), 3, seen=True))
    return len(seen)


@pytest.mark.parametrize("name", FOR_RATES)
def test_with_the_oracle_rates_need_no_pass_of_it(tiny_kit: Kit, name: str) -> None:
    assert (passes(tiny_kit, name, oracle=True), passes(tiny_kit, name, oracle=False)) == (0, 1)


def test_tsp_needs_one_for_its_blend(tiny_kit: Kit) -> None:
    assert passes(tiny_kit, "tsp", oracle=True) == 1
