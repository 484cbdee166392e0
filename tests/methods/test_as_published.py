"""The published methods from kit to logits, against plain loops, and the numbers that they run with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from tiny_kits import bare_kit, in_double
from torch import Tensor

from fewshift.methods import METHODS
from fewshift.nets.choice import choose_engine
from fewshift.nets.kit import Kit
from fewshift.nets.policy import policy_of
from fewshift.nets.set_encoder import DatasetClassifier
from fewshift.types import Labelled, Task, TaskParams

STEPS = 3
LABELS = torch.tensor([0, 0, 1, 1, 1, 2, 2])
# adapters and last map, on domains trained on and on others: URL's and TSA's code, TA²-Net's, TSP's appendix
PUBLISHED = {
    "pa": ((0.0, 0.1), (0.0, 1.0)),
    "tsa": ((0.05, 0.1), (0.5, 1.0)),
    "ta2": ((0.05, 0.1), (2.0, 1.0)),
    "gd": ((0.05, 0.30), (0.25, 0.05)),
    "tsp": ((0.05, 0.30), (0.25, 0.05)),
    "tsp_untrained": ((0.05, 0.30), (0.25, 0.05)),
    "tsp_ta2": ((0.05, 0.30), (0.25, 0.05)),
}
ADADELTA = ("pa", "tsa", "ta2")
UNDER_POLICY = ("ta2", "tsp_ta2")


def few_images(seen: bool | None, dtype: torch.dtype = torch.float64) -> tuple[Task, Tensor]:
    generator = torch.Generator().manual_seed(4)
    images = torch.randn(10, 3, 20, 20, generator=generator, dtype=torch.float64).to(dtype)
    return Task(Labelled(images[:7], LABELS), 3, seen), images[7:]


@pytest.mark.parametrize("seen", [True, False, None])
@pytest.mark.parametrize("name", PUBLISHED)
def test_rates_are_the_published_ones(tiny_kit: Kit, name: str, seen: bool | None) -> None:
    """Of an untold domain, as of a new one; without the oracle then, and a result says so."""
    method = METHODS[name](tiny_kit)
    assert method.steps == 40  # type: ignore[attr-defined]
    adapted = replace(method, steps=1).adapt(few_images(seen, torch.float32)[0])  # type: ignore[type-var]
    assert tuple(adapted.notes["rates"]) == PUBLISHED[name][0 if seen else 1]
    assert adapted.notes["oracle"] == (seen is not None)


@pytest.mark.parametrize("name", ["gd", "tsp", "tsp_ta2"])
def test_with_one_training_domain_the_last_map_is_slower(tiny_kit: Kit, name: str) -> None:
    assert tiny_kit.preconditioners is not None
    learned = tiny_kit.preconditioners
    roots = {site: root[:1] for site, root in learned.roots.items()}
    classifier = DatasetClassifier(1, width=4).eval()
    one = replace(
        bare_kit(),
        domains=("birds",),
        parts=tiny_kit.parts,
        preconditioners=replace(learned, domains=("birds",), roots=roots),
        classifier=classifier,
    )
    for seen, rates in ((True, [0.05, 0.20]), (False, [0.25, 0.05])):
        method = replace(METHODS[name](one), steps=1)  # type: ignore[type-var]
        assert method.adapt(few_images(seen, torch.float32)[0]).notes["rates"] == rates


def unit(rows: Tensor) -> Tensor:
    return rows / rows.norm(dim=1, keepdim=True)


def ten_cosines(features: Tensor, support: Tensor) -> Tensor:
    centres = torch.stack([support[LABELS.eq(c)].mean(dim=0) for c in range(3)])
    return 10 * unit(features) @ unit(centres).T


def preconditioners(kit: Kit, task: Task, name: str) -> dict[str, Tensor]:
    """Lines 4 and 5 of Algorithm 3; before any training all M are 0.1·I."""
    if name == "tsp_untrained":
        return {site: 1.01 * torch.eye(len(v), dtype=v.dtype) for site, v in kit.backbone.init().items()}
    assert kit.preconditioners is not None
    assert kit.classifier is not None
    shares = kit.classifier(task.support.images).exp()
    shares = shares / shares.sum()
    assert shares.max() - shares.min() > 0.05
    found = {}
    for site, roots in kit.preconditioners.roots.items():
        eye = torch.eye(roots.shape[-1], dtype=roots.dtype)
        parts = [p * (m.T @ m + eye) for p, m in zip(shares, roots, strict=True)]
        found[site] = torch.stack(parts).sum(dim=0)
    return found


def copies_of(kit: Kit, task: Task, name: str) -> dict[str, int]:
    """How many equal adapters each site has; PA has none at all."""
    adapters = kit.backbone.sites[:-1]
    if name == "pa":
        return {**dict.fromkeys(adapters, 0), "last": 1}
    if name in UNDER_POLICY:
        return {**policy_of(kit).counts(kit.backbone, task), "last": 1}
    return dict.fromkeys(kit.backbone.sites, 1)


def by_plain_loops(kit: Kit, name: str, task: Task, queries: Tensor) -> Tensor:
    """Every adapter on its own, by torch's optimizers."""
    counts = copies_of(kit, task, name)
    start = {s: 1e-4 * torch.eye(*v.shape, dtype=v.dtype) for s, v in kit.backbone.init().items()}
    start["last"] = torch.eye(kit.backbone.dim, dtype=torch.float64)
    params = {s: [start[s].clone().requires_grad_() for _ in range(n)] for s, n in counts.items()}

    def features(images: Tensor) -> Tensor:
        means: TaskParams = {s: torch.stack(p).mean(dim=0) for s, p in params.items() if p}
        return kit.backbone(means, images)

    adapters, last = PUBLISHED[name][0 if task.seen else 1]
    make: Callable[..., torch.optim.Optimizer]
    make = torch.optim.Adadelta if name in ADADELTA else torch.optim.SGD
    groups = [{"params": p, "lr": last if s == "last" else adapters} for s, p in params.items() if p]
    optimizer = make(groups)
    turned = preconditioners(kit, task, name) if name.startswith("tsp") else {}
    for _ in range(STEPS):
        optimizer.zero_grad()
        found = features(task.support.images)
        F.cross_entropy(ten_cosines(found, found), LABELS).backward()  # type: ignore[no-untyped-call]
        for site, matrix in turned.items():
            for param in params.get(site, []):
                assert param.grad is not None
                param.grad = matrix @ param.grad
        optimizer.step()
    with torch.no_grad():
        return ten_cosines(features(queries), features(task.support.images))


@pytest.mark.parametrize("engine", ["plain", "folded"])
@pytest.mark.parametrize("seen", [True, False])
@pytest.mark.parametrize("name", PUBLISHED)
def test_logits_are_those_of_plain_loops(tiny_kit: Kit, name: str, seen: bool, engine: str) -> None:
    kit = in_double(tiny_kit)
    assert kit.classifier is not None
    with torch.no_grad():  # of coefficients that differ
        kit.classifier.head.bias.copy_(torch.tensor([0.7, -0.4, 0.1]))
    task, queries = few_images(seen)
    method = METHODS[name](kit, choose_engine(kit.backbone, engine))
    found = replace(method, steps=STEPS).adapt(task)(queries)  # type: ignore[type-var]
    torch.testing.assert_close(found, by_plain_loops(kit, name, task, queries), rtol=1e-8, atol=1e-8)
