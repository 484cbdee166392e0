"""Simple CNAPS and tri-M: FiLM from the support set, then Gaussians."""

from dataclasses import replace

import pytest
import torch
from tiny_kits import in_double

from fewshift.core.mahalanobis import class_gaussians, mahalanobis_logits
from fewshift.errors import FewshiftError
from fewshift.evaluation.contract_bench import Bench
from fewshift.methods.simple_cnaps import build as simple_cnaps
from fewshift.methods.trim import build as trim
from fewshift.nets.kit import Kit


@pytest.mark.parametrize("build", [simple_cnaps, trim])
def test_logits_are_those_of_modulated_features(tiny_kit: Kit, build) -> None:  # type: ignore[no-untyped-def]
    kit = in_double(tiny_kit)
    method = build(kit)
    task, queries = Bench(method, dtype=torch.float64).task([3, 1, 2])
    film = method.modulator(task.support.images).film
    assert max(values.abs().max().item() for values in film.values()) > 0.05  # far from the identity
    classes = class_gaussians(method.backbone(film, task.support.images), task.support.labels, 3)
    expected = mahalanobis_logits(method.backbone(film, queries), classes)
    torch.testing.assert_close(method.adapt(task)(queries), expected, rtol=1e-9, atol=1e-9)
    quirk = replace(method, published_one_shot=True)
    assert not torch.allclose(quirk.adapt(task)(queries), expected)


def test_without_gains_both_are_gaussians_on_frozen_features(tiny_kit: Kit) -> None:
    parts = {
        name: replace(
            tiny_kit.parts[name],
            tensors={n: 0 * t if n.endswith(".gain") else t for n, t in tiny_kit.parts[name].tensors.items()},
        )
        for name in ("simple_cnaps", "trim")
    }
    kit = tiny_kit.with_(parts={**tiny_kit.parts, **parts})
    task, queries = Bench(simple_cnaps(kit)).task([3, 3])
    embed = kit.backbone.embed
    classes = class_gaussians(embed(task.support.images), task.support.labels, 2)
    expected = mahalanobis_logits(embed(queries), classes)
    for build in (simple_cnaps, trim):
        torch.testing.assert_close(build(kit).adapt(task)(queries), expected)


def test_the_gate_is_noted_by_domain(tiny_kit: Kit) -> None:
    task, _ = Bench(trim(tiny_kit)).task([3, 3])
    shares = trim(tiny_kit).adapt(task).notes["coefficients"]
    assert list(shares) == ["birds", "cars", "glyphs"]
    assert sum(shares.values()) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize(("build", "command"), [(simple_cnaps, "cnaps"), (trim, "trim")])
def test_kits_that_do_not_fit_say_so(tiny_kit: Kit, untrained_kit: Kit, build, command: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(FewshiftError, match=f"run fewshift train {command}"):
        build(untrained_kit)
    name = build(tiny_kit).name
    part = tiny_kit.parts[name]
    other = replace(part, tensors={n: t for n, t in part.tensors.items() if n != "stages.0.gain"})
    with pytest.raises(FewshiftError, match=r"does not fit its backbone \(Missing key.*train it again"):
        build(tiny_kit.with_(parts={name: other}))
