"""Who computes meta-gradients: the fastest that a backbone and its device allow."""

from dataclasses import replace

import pytest
import torch
from patterns import resnet_backbone

from fewshift.errors import FewshiftError
from fewshift.nets.adapters import adapters_at
from fewshift.nets.backbone import Backbone
from fewshift.training.fastest import best_meta_gradients
from fewshift.training.graphed import GraphedBatches
from fewshift.training.metagradients import FoldedOneByOne, OneByOne


def test_graphs_are_for_all_sites_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = resnet_backbone()
    some = replace(whole, adapters=adapters_at(whole.net, whole.sites[:2]))
    with_stem = replace(whole, adapters=adapters_at(whole.net, ("conv1", *whole.sites[:-1])))
    for backbone, expected in ((whole, FoldedOneByOne), (some, FoldedOneByOne), (with_stem, OneByOne)):
        assert type(best_meta_gradients(backbone)) is expected
    monkeypatch.setattr(Backbone, "device", torch.device("cuda"))
    for backbone, expected in ((whole, GraphedBatches), (some, FoldedOneByOne), (with_stem, OneByOne)):
        assert type(best_meta_gradients(backbone)) is expected
    with pytest.raises(FewshiftError, match="choose float16"):
        best_meta_gradients(whole, "bfloat16")
