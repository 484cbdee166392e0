"""FiLM as a change of weights is FiLM on activations."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from fewshift.errors import FewshiftError
from fewshift.nets.any_module import backbone_from
from fewshift.nets.backbone import Backbone
from fewshift.nets.fast_weights import fast_net
from fewshift.nets.film import FilmSites, block_norms, channels, every_norm, modulate, norms_as_film
from fewshift.nets.moments import by_own_moments, with_moments_of
from fewshift.types import TaskParams

IMAGES = torch.randn(6, 3, 28, 28, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.fixture
def backbone(make_backbone: Callable[..., Backbone]) -> Backbone:
    return make_backbone()


def some_film(backbone: Backbone, sites: tuple[str, ...], seed: int = 0) -> TaskParams:
    generator = torch.Generator().manual_seed(seed)
    return {
        site: 0.3 * torch.randn(2, width, generator=generator, dtype=backbone.dtype)
        for site, width in channels(backbone, sites).items()
    }


@pytest.mark.parametrize("where", ["blocks", "everywhere"])
def test_merged_weights_equal_film_behind_the_norms(backbone: Backbone, where: str) -> None:
    sites = block_norms() if where == "blocks" else every_norm(backbone.net)
    assert len(sites) == (16 if where == "blocks" else 20)
    film = some_film(backbone, sites)
    found = Backbone(backbone.net, backbone.frozen, FilmSites(sites))(film, IMAGES)

    def hook(pair: Tensor) -> Callable[..., Tensor]:
        scale, shift = (row[:, None, None] for row in pair)
        return lambda _module, _given, out: (1 + scale) * out + shift

    net = backbone.to().net  # a copy
    for site, pair in film.items():
        net.get_submodule(site).register_forward_hook(hook(pair))
    torch.testing.assert_close(found, net(IMAGES), rtol=1e-9, atol=1e-9)
    assert not torch.allclose(found, backbone.embed(IMAGES))


def test_film_of_zeros_changes_nothing(backbone: Backbone) -> None:
    film = Backbone(backbone.net, backbone.frozen, FilmSites(block_norms()))
    assert torch.equal(film(film.init(), IMAGES), backbone.embed(IMAGES))


def test_norms_as_film_are_the_same_network(backbone: Backbone) -> None:
    weights, films = norms_as_film(backbone, 3)
    bare = Backbone(backbone.net, weights, FilmSites(tuple(films)))
    for domain in range(3):
        found = bare({site: film[domain] for site, film in films.items()}, IMAGES)
        torch.testing.assert_close(found, backbone.embed(IMAGES), rtol=1e-10, atol=1e-10)
    fresh = norms_as_film(backbone, 2, fresh=True)[1]
    assert all(film.shape[0] == 2 and not film.any() for film in fresh.values())


def test_other_networks_are_refused_in_a_sentence(backbone: Backbone) -> None:
    with pytest.raises(FewshiftError, match=r"no norm layer9\.0\.bn1"):
        channels(backbone, ("layer9.0.bn1",))


def test_own_moments_are_those_of_batch_norm_in_training(backbone: Backbone) -> None:
    film = Backbone(backbone.net, backbone.frozen, FilmSites(every_norm(backbone.net)))
    params = some_film(film, film.sites)
    before = {name: tensor.clone() for name, tensor in film.frozen.items()}
    own = by_own_moments(film)
    copied = backbone.to().net.train()
    with torch.no_grad():
        copied.load_state_dict(modulate(film.frozen, params), strict=False)
        expected = copied(IMAGES)
    torch.testing.assert_close(own(params, IMAGES), expected, rtol=1e-9, atol=1e-9)
    assert all(torch.equal(before[name], tensor) for name, tensor in film.frozen.items())
    assert not own(params, IMAGES[:2]).allclose(own(params, IMAGES)[:2])


def test_kept_moments_give_the_set_its_own_features_image_by_image(backbone: Backbone) -> None:
    film = Backbone(backbone.net, backbone.frozen, FilmSites(every_norm(backbone.net)))
    params, own = some_film(film, film.sites), by_own_moments(film)
    settled, features = with_moments_of(film, own, params, IMAGES)
    assert torch.equal(features, own(params, IMAGES))
    alone = torch.cat([settled(params, image[None]) for image in IMAGES])
    torch.testing.assert_close(alone, features, rtol=1e-8, atol=1e-8)
    assert not any(module._forward_pre_hooks for module in own.net.modules())
    norm = own.net.get_submodule("bn1")
    assert isinstance(norm, nn.BatchNorm2d)
    assert norm.num_batches_tracked is None or norm.num_batches_tracked == film.net.bn1.num_batches_tracked


def test_gradients_flow_through_the_moments(backbone: Backbone) -> None:
    """By finite differences: what stands behind the stem moves the moments of all later norms."""
    own = by_own_moments(Backbone(backbone.net, backbone.frozen, FilmSites(("bn1",))))
    film = {"bn1": torch.zeros(2, 4, dtype=torch.float64, requires_grad=True)}
    (gradient,) = torch.autograd.grad(own(film, IMAGES).square().sum(), [film["bn1"]])
    shift = 1e-5
    for row in range(2):
        moved = [
            own({"bn1": _bumped(film["bn1"], row, sign * shift)}, IMAGES).square().sum() for sign in (1, -1)
        ]
        assert float(gradient[row, 1]) == pytest.approx(float(moved[0] - moved[1]) / (2 * shift), rel=1e-4)


def test_own_moments_leave_dropout_and_other_norms_at_rest() -> None:
    """Else a task would change from call to call, and the running averages that all tasks share with it."""
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.5))
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.BatchNorm1d(8)).double()
    backbone = backbone_from(net)
    before = {name: tensor.clone() for name, tensor in backbone.frozen.items()}
    own = by_own_moments(backbone)
    found = own({}, IMAGES)
    assert torch.equal(own({}, IMAGES), found)
    assert not found.allclose(backbone.embed(IMAGES))
    assert all(torch.equal(before[name], tensor) for name, tensor in backbone.frozen.items())


class _NormAndMore(nn.BatchNorm2d):
    """As some libraries have it: a norm with the activation behind it."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(super().forward(x))


def test_a_norm_that_does_more_is_not_replaced_by_a_bare_one() -> None:
    net = nn.Sequential(nn.Conv2d(3, 4, 3), _NormAndMore(4), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    with pytest.raises(FewshiftError, match=r"net\.1 is a _NormAndMore.*--norm running"):
        fast_net(backbone_from(net))
    fast_net(backbone_from(net), norm="running")


def _bumped(film: Tensor, row: int, by: float) -> Tensor:
    film = film.detach().clone()
    film[row, 1] += by
    return film
