"""FLUTE's blend, its steps and its moments."""

from dataclasses import dataclass, replace

import pytest
import torch
import torch.nn.functional as F
from tiny_kits import in_double
from torch import Tensor

from fewshift.core.centroids import cosine_logits, prototypes
from fewshift.errors import FewshiftError
from fewshift.evaluation.contract_bench import Bench
from fewshift.methods.flute import Flute, build
from fewshift.nets.film import modulate
from fewshift.nets.kit import Kit


@dataclass(frozen=True)
class Sure:
    """A blender that is certain of one domain."""

    place: int
    domains: int = 3

    def __call__(self, images: Tensor) -> Tensor:
        return torch.where(torch.arange(self.domains) == self.place, 0.0, -torch.inf).to(images.dtype)


@pytest.fixture(scope="module")
def flute(tiny_kit: Kit) -> Flute:
    return build(in_double(tiny_kit))


def a_task(flute: Flute, shots: list[int]):  # type: ignore[no-untyped-def]
    return Bench(flute, dtype=torch.float64).task(shots)


def features(flute: Flute, film: dict[str, Tensor], images: Tensor) -> Tensor:
    """The network in torch's own training mode, whose norms use the images' moments."""
    net = flute.template.to().net.train()
    with torch.no_grad():
        net.load_state_dict(modulate(flute.template.frozen, film), strict=False)
        found: Tensor = net(images)
    return found


@pytest.mark.parametrize("place", [0, 2])
def test_a_sure_blend_is_that_domains_film(flute: Flute, place: int) -> None:
    task, _ = a_task(flute, [3, 2, 4])
    sure = replace(flute, blender=Sure(place), steps=0)  # type: ignore[arg-type]
    film = {site: values[place] for site, values in flute.films.items()}
    own = flute.own(film, task.support.images)
    assert torch.equal(
        sure.adapt(task)(task.support.images).argmax(dim=1),
        cosine_logits(own, prototypes(own, task.support.labels, 3)).argmax(dim=1),
    )
    torch.testing.assert_close(own, features(flute, film, task.support.images), rtol=1e-9, atol=1e-9)
    centres = prototypes(own, task.support.labels, 3)
    expected = cosine_logits(own, centres, scale=1.0)
    torch.testing.assert_close(sure.adapt(task)(task.support.images), expected, rtol=1e-8, atol=1e-8)
    assert sure.adapt(task).notes["coefficients"] == {
        name: float(place == k) for k, name in enumerate(flute.domains)
    }


def test_an_unsure_blend_is_none_of_them(flute: Flute) -> None:
    task, queries = a_task(flute, [3, 3])
    still = replace(flute, steps=0)
    mixed = still.adapt(task)(queries)
    for place in range(3):
        alone = replace(still, blender=Sure(place)).adapt(task)(queries)  # type: ignore[arg-type]
        assert not torch.allclose(mixed, alone)


def test_the_steps_are_those_of_torchs_adam_on_deltas(flute: Flute) -> None:
    """Deltas from zero on the blend, the summed cross-entropy of cosines without a scale."""
    task, _ = a_task(flute, [2, 3, 2])
    images, labels = task.support.images, task.support.labels
    shares = flute.blender(images).softmax(dim=-1)
    blend = {site: (shares[:, None, None] * film).sum(dim=0) for site, film in flute.films.items()}
    deltas = {site: torch.zeros_like(film, requires_grad=True) for site, film in blend.items()}
    optimizer = torch.optim.Adam(list(deltas.values()), lr=0.005)
    for _ in range(6):
        found = flute.own({site: blend[site] + deltas[site] for site in blend}, images)
        logits = cosine_logits(found, prototypes(found, labels, 3), scale=1.0)
        loss = F.cross_entropy(logits, labels, reduction="sum")
        gradients = torch.autograd.grad(loss, list(deltas.values()))
        for delta, gradient in zip(deltas.values(), gradients, strict=True):
            delta.grad = gradient
        optimizer.step()
    film = {site: (blend[site] + deltas[site]).detach() for site in blend}
    own = features(flute, film, images)
    expected = cosine_logits(own, prototypes(own, labels, 3), scale=1.0)
    adapted = flute.adapt(task)
    torch.testing.assert_close(adapted(images), expected, rtol=1e-6, atol=1e-6)
    assert len(adapted.notes["losses"]) == 6
    assert adapted.notes["losses"][0] > adapted.notes["losses"][-1]


def test_one_domain_has_the_published_start_of_its_own(tiny_kit: Kit) -> None:
    part = tiny_kit.parts["flute"]
    alone = {n: t[:1] if n.startswith(("films/", "blender/head")) else t for n, t in part.tensors.items()}
    kit = tiny_kit.with_(
        parts={"flute": replace(part, tensors=alone, settings={**part.settings, "domains": ["birds"]})}
    )
    assert (build(kit).steps, build(kit).rate) == (2, 0.001)


def test_a_kit_without_it_says_what_to_run(untrained_kit: Kit) -> None:
    with pytest.raises(FewshiftError, match="nothing trained for flute: run fewshift train flute"):
        build(untrained_kit)
