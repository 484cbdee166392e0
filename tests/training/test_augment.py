"""Augmentation against independent colour arithmetic, padding and cropping."""

from __future__ import annotations

import colorsys

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fewshift.errors import FewshiftError
from fewshift.training.augment import (
    NONE,
    Augmentation,
    Draws,
    augment,
    crop,
    draw,
    enlarge,
    saturate,
    turn_hue,
)


def levels(count: int = 4, size: int = 12, seed: int = 0) -> Tensor:
    return torch.from_numpy(
        np.random.default_rng(seed).integers(0, 256, (count, 3, size, size), dtype=np.uint8)
    )


def through_hsv(images: Tensor, saturation: float, turn: float) -> Tensor:
    """Pixel by pixel with the standard library."""
    out = torch.empty(images.shape)
    for n, y, x in np.ndindex(images.shape[0], *images.shape[2:]):
        hue, sat, value = colorsys.rgb_to_hsv(*(images[n, :, y, x] / 255).tolist())
        rgb = colorsys.hsv_to_rgb((hue + turn) % 1, min(1.0, sat * saturation), value)
        out[n, :, y, x] = torch.tensor(rgb) * 255
    return out


@pytest.mark.parametrize("factor", [0.8, 1.0, 1.2, 5.0])
def test_saturation_is_that_of_hsv(factor: float) -> None:
    images = levels().float()
    found = saturate(images, torch.full((4, 1, 1, 1), factor))
    torch.testing.assert_close(found, through_hsv(images, factor, 0), rtol=1e-5, atol=1e-2)


@pytest.mark.parametrize("turn", [-0.03, 0.0, 0.03, 0.4])
def test_hue_is_that_of_hsv(turn: float) -> None:
    images = levels().float()
    found = turn_hue(images, torch.full((4, 1, 1, 1), turn))
    torch.testing.assert_close(found, through_hsv(images, 1, turn), rtol=1e-5, atol=2e-2)


def test_grey_images_keep_their_colour() -> None:
    images = levels()[:, :1].expand(-1, 3, -1, -1).float()
    for found in (
        saturate(images, torch.full((4, 1, 1, 1), 1.2)),
        turn_hue(images, torch.full((4, 1, 1, 1), 0.3)),
    ):
        torch.testing.assert_close(found, images)


def test_crops_come_out_of_a_mirrored_border() -> None:
    images, pad = torch.randn(20, 3, 9, 11), 4
    rng = np.random.default_rng(0)
    place = torch.from_numpy(
        np.stack([*rng.integers(0, 2 * pad + 1, (2, 20)), rng.integers(0, 2, 20)], axis=1)
    )
    padded = F.pad(images, (pad,) * 4, mode="reflect")
    for found, image, (top, left, mirrored) in zip(
        crop(images, place, pad), padded, place.tolist(), strict=True
    ):
        window = image[:, top : top + 9, left : left + 11]
        assert torch.equal(found, window.flip(-1) if mirrored else window)


def test_the_order_is_colour_then_range_then_crop() -> None:
    augmentation = Augmentation(brightness=0, saturation=0, hue=0, pad=0)
    draws = Draws(
        np.tile(np.float32([0, 1, 1.2, 0]), (4, 1)),
        np.zeros((4, 3), np.int64),
        np.tile(np.float32([1, 1, 0, 0]), (4, 1)),
    )
    images = levels().float()
    mean = images.mean(dim=(2, 3), keepdim=True)
    wanted = ((images - mean) * 1.2 + mean) * 2 / 255 - 1
    torch.testing.assert_close(augment(levels(), augmentation, draws), wanted)


def test_nothing_asked_is_nothing_done() -> None:
    found = augment(levels(), NONE, draw(NONE, 4, np.random.default_rng(0)))
    torch.testing.assert_close(found, levels().float() * 2 / 255 - 1)


def test_draws_stay_in_their_ranges_and_depend_on_the_generator_only() -> None:
    augmentation = Augmentation(flip=True)
    drawn = draw(augmentation, 2000, np.random.default_rng(7))
    spans = [(-0.125, 0.125), (0.8, 1.2), (0.8, 1.2), (-0.03, 0.03)]
    for column, (low, high) in zip(drawn.colour.T, spans, strict=True):
        assert low <= column.min() < low + 0.02 * (high - low)
        assert high - 0.02 * (high - low) < column.max() <= high
    assert set(np.unique(drawn.place[:, :2])) == set(range(17))
    assert 900 < drawn.place[:, 2].sum() < 1100
    again = draw(augmentation, 2000, np.random.default_rng(7))
    assert np.array_equal(drawn.colour, again.colour)
    assert np.array_equal(drawn.place, again.place)
    assert not draw(Augmentation(), 100, np.random.default_rng(7)).place[:, 2].any()


def test_impossible_ranges_are_refused() -> None:
    with pytest.raises(FewshiftError, match="hue is -1"):
        Augmentation(hue=-1)
    with pytest.raises(FewshiftError, match="a border of 12 pixels"):
        crop(torch.zeros(1, 3, 12, 12), torch.zeros(1, 3, dtype=torch.int64), 12)


def test_a_whole_window_enlarges_nothing_and_a_quarter_is_stretched() -> None:
    images = torch.rand(2, 3, 8, 8)
    whole = torch.tensor([[1.0, 1, 0, 0]]).expand(2, 4)
    torch.testing.assert_close(enlarge(images, whole), images, atol=1e-5, rtol=0)
    left_half = torch.tensor([[1.0, 0.5, 0, -0.5]]).expand(2, 4)
    wanted = torch.nn.functional.interpolate(images, size=(8, 16), mode="bilinear")[..., :7]
    torch.testing.assert_close(enlarge(images, left_half)[..., :7], wanted, atol=1e-5, rtol=0)


def test_windows_stay_inside_the_image() -> None:
    window = draw(Augmentation(zoom=0.6), 500, np.random.default_rng(0)).window
    sides, centres = window[:, :2], window[:, 2:]
    assert sides.min() >= 0.4
    assert sides.max() <= 1
    assert np.all(np.abs(centres) + sides <= 1 + 1e-6)


def test_letters_keep_their_sides() -> None:
    draws = draw(Augmentation(flip=True), 100, np.random.default_rng(0))
    kept = np.arange(100) < 50
    found = draws.unmirrored(kept).place
    assert not found[:50, 2].any()
    assert np.array_equal(found[50:], draws.place[50:])
    assert np.array_equal(found[:, :2], draws.place[:, :2])


def test_zoom_leaves_what_else_is_drawn_as_it_was() -> None:
    plain, zoomed = (draw(Augmentation(zoom=z), 20, np.random.default_rng(3)) for z in (0.0, 0.5))
    assert np.array_equal(plain.colour, zoomed.colour)
    assert np.array_equal(plain.place, zoomed.place)
