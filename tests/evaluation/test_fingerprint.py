"""Kits that could give other numbers have other fingerprints."""

import torch

from fewshift.evaluation.fingerprint import kit_fingerprint
from fewshift.nets.backbone import freeze
from fewshift.nets.kit import Kit, Part
from fewshift.nets.resnet import ResNet18


def test_what_further_methods_learned_counts() -> None:
    bare = Kit(freeze(ResNet18(4)))
    kits = [bare, *(bare.with_(parts={"trim": Part({"gain": torch.full((2,), v)})}) for v in (0.0, 1.0))]
    kits.append(bare.with_(parts={"flute": Part({"gain": torch.zeros(2)})}))
    assert len({kit_fingerprint(kit) for kit in kits}) == 4
    assert kit_fingerprint(kits[1]) == kit_fingerprint(kits[1].to("cpu"))


def test_a_score_that_is_written_later_changes_nothing_and_rates_do() -> None:
    bare = Kit(freeze(ResNet18(4)))
    scored = bare.with_(info={"validation": {"default_score": 0.7}})
    rated = bare.with_(info={"rates": {"gd": {"seen": [0, 1], "unseen": [0, 1]}}})
    assert kit_fingerprint(bare) == kit_fingerprint(scored) != kit_fingerprint(rated)
