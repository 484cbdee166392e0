"""The hyper-networks, quantity by quantity as they are written down."""

import math

import torch
from torch import Tensor, nn

from fewshift.nets.modulators import (
    AttentionSideBySide,
    CnapsModulator,
    CnapsStage,
    SideBySide,
    TriMModulator,
    TriMStage,
    gain_penalty,
)

SITES = {"layer1.0.bn1": 64, "layer1.0.bn2": 64, "layer2.0.bn1": 128, "layer2.0.bn2": 128}
IMAGES = torch.randn(5, 3, 16, 16, generator=torch.Generator().manual_seed(0))


def linear(layers: SideBySide, place: int) -> nn.Linear:
    made = nn.Linear(layers.weight.shape[2], layers.weight.shape[1]).double()
    with torch.no_grad():
        made.weight.copy_(layers.weight[place])
        made.bias.copy_(layers.bias[place])
    return made


def test_cnaps_stage_equals_its_residual_networks_one_by_one() -> None:
    torch.manual_seed(0)
    stage, code = CnapsStage(8, 6, 4).double(), torch.randn(8).double()
    expected = []
    for place in range(4):
        x = torch.relu(stage.enter(code))
        first, second, third = (linear(layer, place) for layer in stage.layers)  # type: ignore[arg-type]
        x = x + first(x)
        x = torch.relu(x)
        x = x + second(x)
        x = torch.relu(x)
        x = x + third(x)
        expected.append(stage.gain[place] * x)
    torch.testing.assert_close(stage(code), torch.stack(expected), rtol=1e-10, atol=1e-12)


def test_attention_equals_heads_one_by_one() -> None:
    torch.manual_seed(0)
    block = AttentionSideBySide(2, 5, 4, 6, heads=3).double()
    x, context = torch.randn(2, 1, 5).double(), torch.randn(2, 7, 4).double()
    for place in range(2):
        query = linear(block.query, place)(x[place])
        key, value = linear(block.key, place)(context[place]), linear(block.value, place)(context[place])
        heads = []
        for head in range(3):
            part = slice(2 * head, 2 * head + 2)
            scores = torch.softmax(query[:, part] @ key[:, part].T / math.sqrt(6), dim=-1)
            heads.append(scores @ value[:, part])
        out = query + torch.cat(heads, dim=1)
        out = out + torch.relu(linear(block.leave, place)(out))
        torch.testing.assert_close(block(x, context)[place], out, rtol=1e-10, atol=1e-12)


def test_widths_and_heads_are_the_published_ones() -> None:
    narrow, wide = TriMStage(64, 64, 8, 8), TriMStage(64, 512, 8, 8)
    assert (narrow.within.width, narrow.within.heads, narrow.across.heads) == (64, 2, 2)
    assert (wide.within.width, wide.within.heads, wide.across.width, wide.across.heads) == (96, 3, 512, 16)
    assert wide.specific.shape == wide.cooperative.shape == (8, 8, 512)
    spread = wide.cooperative.std(dim=(1, 2))
    assert ((spread / torch.tensor([0.2, 0.2, 0.1, 0.1] * 2) - 1).abs() < 0.1).all()


def mixed(stage: TriMStage, by: float) -> None:
    """Make alpha 0 or 1 everywhere."""
    with torch.no_grad():
        stage.mixing.weight.zero_()
        stage.mixing.bias.fill_(by)


def test_without_cooperation_a_sure_gate_gives_that_domains_film() -> None:
    """As FLUTE's blend at a one-hot coefficient; and the path is linear in the gate."""
    torch.manual_seed(0)
    stage, code = TriMStage(8, 64, 4, 3).double(), torch.randn(8).double()
    mixed(stage, -torch.inf)
    gates = torch.eye(3).double()
    for domain, gate in enumerate(gates):
        assert torch.equal(stage(code, gate), stage.gain * stage.specific[:, domain])
    blend = torch.tensor([0.2, 0.5, 0.3]).double()
    parts = sum(share * stage(code, gate) for share, gate in zip(blend, gates, strict=True))
    torch.testing.assert_close(stage(code, blend), parts, rtol=1e-10, atol=1e-14)


def test_with_cooperation_alone_the_gate_does_not_matter() -> None:
    torch.manual_seed(0)
    stage, code = TriMStage(8, 64, 4, 3).double(), torch.randn(8).double()
    mixed(stage, torch.inf)
    found = [stage(code, gate) for gate in torch.eye(3).double()]
    assert torch.equal(found[0], found[1])
    torch.testing.assert_close(found[0], stage.gain * stage.joint(code), rtol=0, atol=0)
    assert not torch.allclose(stage.joint(code), stage.joint(-code))


def test_film_starts_near_the_identity_and_fits_the_sites() -> None:
    torch.manual_seed(0)
    for modulator in (CnapsModulator(SITES, 16), TriMModulator(SITES, 4, 16)):
        found = modulator(IMAGES)
        assert {site: film.shape for site, film in found.film.items()} == {
            s: (2, c) for s, c in SITES.items()
        }
        assert max(film.detach().abs().max().item() for film in found.film.values()) < 0.01
        gains = [weight for name, weight in modulator.named_parameters() if name.endswith("gain")]
        assert len(gains) == 2
        torch.testing.assert_close(
            gain_penalty(modulator), sum((g.square().sum() for g in gains), Tensor([0])[0])
        )


def test_the_order_of_images_does_not_matter_and_every_weight_learns() -> None:
    torch.manual_seed(0)
    for modulator in (CnapsModulator(SITES, 16), TriMModulator(SITES, 4, 16)):
        found, turned = modulator(IMAGES), modulator(IMAGES.flip(0))
        for site, film in found.film.items():
            torch.testing.assert_close(film, turned.film[site], rtol=1e-4, atol=1e-7)
        total = sum((film.square().sum() for film in found.film.values()), Tensor([0])[0])
        weights = dict(modulator.named_parameters())
        gradients = torch.autograd.grad(total, list(weights.values()))
        idle = [name for name, g in zip(weights, gradients, strict=True) if not g.any()]
        # softmax does not see what is added to all keys alike
        assert all(name.endswith("key.bias") for name in idle), idle
