"""SUR and URT against their direct computation; what goes with extractors."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from tiny_kits import DOMAINS, in_double

from fewshift.core.centroids import cosine_logits, prototypes
from fewshift.errors import FewshiftError
from fewshift.evaluation.contract_bench import Bench
from fewshift.methods.sur import build as sur
from fewshift.methods.urt import build as urt
from fewshift.nets.backbone import freeze
from fewshift.nets.extractors import extractors_of, extractors_part
from fewshift.nets.kit import Kit
from fewshift.nets.resnet import ResNet18


def test_sur_equals_forty_steps_of_torchs_adadelta_on_long_vectors(tiny_kit: Kit) -> None:
    method = sur(in_double(tiny_kit))
    task, queries = Bench(method, dtype=torch.float64).task([3, 1, 2, 4])
    labels = task.support.labels
    support, query = (
        torch.stack([F.normalize(b.embed(images)) for b in method.extractors.backbones], dim=1)
        for images in (task.support.images, queries)
    )
    selection = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adadelta([selection], lr=3000 / 4)
    losses = []
    for _ in range(40):
        long = (selection.sigmoid()[:, None] * support).flatten(1)
        loss = F.cross_entropy(cosine_logits(long, prototypes(long, labels, 4)), labels)
        losses.append(loss.item())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    with torch.no_grad():
        long, asked = ((selection.sigmoid()[:, None] * f).flatten(1) for f in (support, query))
        expected = cosine_logits(asked, prototypes(long, labels, 4))
    adapted = method.adapt(task)
    torch.testing.assert_close(adapted(queries), expected, rtol=1e-6, atol=1e-6)
    assert adapted.notes["losses"] == pytest.approx(losses, abs=2e-5)
    assert set(adapted.notes["coefficients"]) == set(DOMAINS)


def test_urt_attends_to_more_than_one_extractor(tiny_kit: Kit) -> None:
    method = urt(tiny_kit)
    task, _ = Bench(method).task([3, 3])
    shares = method.adapt(task).notes["coefficients"]
    assert sum(shares.values()) == pytest.approx(1, abs=1e-3)
    assert all(0 < share < 1 for share in shares.values())


def test_a_selector_of_other_extractors_is_refused(tiny_kit: Kit) -> None:
    part = replace(tiny_kit.parts["urt"], settings={"domains": ["birds", "cars"]})
    with pytest.raises(FewshiftError, match="is for extractors of birds, cars, the kit has birds, cars, gl"):
        urt(tiny_kit.with_(parts={**tiny_kit.parts, "urt": part}))


def test_extractors_are_the_networks_they_were_taken_from(untrained_kit: Kit) -> None:
    torch.manual_seed(5)
    nets = {"birds": freeze(ResNet18(4)), "cars": untrained_kit.backbone}
    images = torch.randn(3, 3, 28, 28)
    for dtype, close in ((None, 1e-6), (torch.float16, 0.02)):
        kit = untrained_kit.with_(parts={"extractors": extractors_part(untrained_kit, nets, dtype)})
        found = extractors_of(kit)
        assert found.domains == ("birds", "cars")
        for place, net in enumerate(nets.values()):
            expected = F.normalize(net.embed(images))
            torch.testing.assert_close(found(images)[:, place], expected, rtol=close, atol=close)


def test_extractors_of_another_form_or_beyond_16_bits_are_refused(untrained_kit: Kit) -> None:
    for other, said in ((ResNet18(8), "train one like that"), (ResNet18(4, stem_padding=1), "stem padding")):
        with pytest.raises(FewshiftError, match=rf"another architecture.*{said}"):
            extractors_part(untrained_kit, {"birds": freeze(other)})
    loud = freeze(ResNet18(4))
    loud.frozen["bn1.running_var"].fill_(1e6)
    with pytest.raises(FewshiftError, match="does not fit into 16 bits"):
        extractors_part(untrained_kit, {"birds": loud}, torch.float16)
    with pytest.raises(FewshiftError, match="name one domain at least"):
        extractors_part(untrained_kit, {})
