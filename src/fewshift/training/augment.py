"""How batches of images are varied while an extractor is trained (episodes never are).

The order is the published one: brightness, saturation, contrast, hue on the scale [0, 255], then [-1, 1],
then a crop out of a mirrored border. Nothing is clipped. All random numbers are drawn on the host from an
address, so every device sees the same images. `zoom` and `flip` are ours, for domains of few images.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from fewshift.data.resident import to_device
from fewshift.errors import FewshiftError
from fewshift.training.refusals import at_least


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """The ranges. The defaults are the published ones for 84-pixel images, without zoom or flip."""

    brightness: float = 0.125  # added, on the scale [0, 255]: as published, and practically nothing
    saturation: float = 0.2  # factor in 1 ± this
    contrast: float = 0.2  # factor in 1 ± this, about each channel's mean
    hue: float = 0.03  # shift in ± this of the full circle
    pad: int = 8  # pixels of mirrored border that a crop may reach into
    flip: bool = False  # mirror left and right half of the time
    zoom: float = 0.0  # enlarge a window whose sides are at least 1 - this of the image's

    def __post_init__(self) -> None:
        if not 0 <= self.zoom < 1:
            raise FewshiftError(f"augmentation: zoom is {self.zoom}: give 0 or more and less than 1")
        at_least(0, "augmentation: ", self, "brightness", "saturation", "contrast", "hue", "pad")


NONE = Augmentation(brightness=0, saturation=0, contrast=0, hue=0, pad=0)


@dataclass(frozen=True)
class Draws:
    """The random numbers of a batch, one row per image."""

    colour: NDArray[np.float32]  # (n, 4): brightness, saturation, contrast, hue
    place: NDArray[np.int64]  # (n, 3): top, left, mirrored?
    window: NDArray[np.float32]  # (n, 4): height, width, and the centre's y and x; in halves of the image

    def of(self, places: NDArray[np.int64]) -> Draws:
        """Those of some images."""
        return Draws(self.colour[places], self.place[places], self.window[places])

    def unmirrored(self, kept: NDArray[np.bool_]) -> Draws:  # (n,)
        """The same, but these images keep their sides: a mirrored letter is another letter."""
        return replace(self, place=np.where(kept[:, None] & (np.arange(3) == 2), 0, self.place))


def draw(augmentation: Augmentation, count: int, generator: np.random.Generator) -> Draws:
    """What happens to each of `count` images."""
    spread = [augmentation.brightness, augmentation.saturation, augmentation.contrast, augmentation.hue]
    colour = np.array(spread) * generator.uniform(-1, 1, (count, 4)) + np.array([0, 1, 1, 0])
    place = generator.integers(0, 2 * augmentation.pad + 1, (count, 3))
    place[:, 2] = generator.integers(0, 2, count) if augmentation.flip else 0
    window = np.tile(np.array([1, 1, 0, 0], np.float32), (count, 1))
    if augmentation.zoom:
        sides = 1 - augmentation.zoom * generator.uniform(0, 1, (count, 2))
        centres = (1 - sides) * generator.uniform(-1, 1, (count, 2))
        window = np.concatenate([sides, centres], axis=1).astype(np.float32)
    return Draws(colour.astype(np.float32), place, window)


def augment(levels: Tensor, augmentation: Augmentation, draws: Draws) -> Tensor:
    """Varied images in about [-1, 1], from levels in [0, 255]; (n, 3, h, w) -> (n, 3, h, w)."""
    images = levels.to(torch.float32, memory_format=torch.channels_last)
    colour = to_device(draws.colour, levels.device)
    brightness, saturation, contrast, hue = (column[:, None, None, None] for column in colour.T)
    if augmentation.brightness:
        images = images + brightness
    if augmentation.saturation:
        images = saturate(images, saturation)
    if augmentation.contrast:
        mean = images.mean(dim=(2, 3), keepdim=True)
        images = (images - mean) * contrast + mean
    if augmentation.hue:
        images = turn_hue(images, hue)
    images = images * (2 / 255) - 1
    if augmentation.zoom:
        images = enlarge(images, to_device(draws.window, levels.device))
    if augmentation.pad or augmentation.flip:
        images = crop(images, to_device(draws.place, levels.device), augmentation.pad)
    return images


def saturate(images: Tensor, factor: Tensor) -> Tensor:  # (n, 3, h, w), (n, 1, 1, 1) -> (n, 3, h, w)
    """Scale the saturation of HSV, at most to 1; hue and value stay.

    With value v and chroma c, saturation is c / v and every channel is v - c·k(hue): so scaling the
    saturation scales the distance of each channel from v.
    """
    value, chroma = _value_and_chroma(images)
    most = torch.where(chroma > 0, value / chroma.clamp_min(1e-6), factor).clamp_min(0)
    return value - (value - images) * torch.minimum(factor, most)


def turn_hue(images: Tensor, shift: Tensor) -> Tensor:  # (n, 3, h, w), (n, 1, 1, 1) -> (n, 3, h, w)
    """Turn the hue of HSV by `shift` full circles; saturation and value stay."""
    value, chroma = _value_and_chroma(images)
    red, green, blue = torch.split(images, 1, dim=1)
    safe = chroma.clamp_min(1e-6)
    sextant = torch.where(
        value == red,
        (green - blue) / safe,
        torch.where(value == green, (blue - red) / safe + 2, (red - green) / safe + 4),
    )
    start = torch.arange(5, 0, -2, device=images.device)[:, None, None]  # where red, green and blue rise
    angle = (sextant + 6 * shift + start).remainder(6)
    return value - chroma * torch.minimum(angle, 4 - angle).clamp(0, 1)


def enlarge(images: Tensor, window: Tensor) -> Tensor:  # (n, 3, h, w), (n, 4) -> (n, 3, h, w)
    """The window of each image, stretched over the whole of it, bilinearly."""
    height, width, y, x = window.T
    zero = torch.zeros_like(y)
    places = torch.stack([torch.stack([width, zero, x], 1), torch.stack([zero, height, y], 1)], 1)
    grid = F.affine_grid(places, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)


def crop(images: Tensor, place: Tensor, pad: int) -> Tensor:  # (n, 3, h, w), (n, 3) -> (n, 3, h, w)
    """The window at (top, left) of the image with a mirrored border, flipped where asked; sizes stay."""
    count, _, height, width = images.shape
    if pad >= min(height, width):
        raise FewshiftError(
            f"augmentation: a border of {pad} pixels needs images larger than {height} x {width}"
        )
    rows = _mirrored(place[:, :1] + torch.arange(height, device=images.device) - pad, height)
    columns = torch.arange(width, device=images.device).expand(count, -1)
    columns = torch.where(place[:, 2:] > 0, width - 1 - columns, columns)
    columns = _mirrored(place[:, 1:2] + columns - pad, width)
    flat = (rows[:, :, None] * width + columns[:, None, :]).reshape(count, 1, -1)
    pixels = images.permute(0, 2, 3, 1).reshape(count, height * width, 3)
    cut = pixels.gather(1, flat.reshape(count, -1, 1).expand(-1, -1, 3))
    return cut.reshape(count, height, width, 3).permute(0, 3, 1, 2)


def _value_and_chroma(images: Tensor) -> tuple[Tensor, Tensor]:  # (n, 3, h, w) -> (n, 1, h, w), (n, 1, h, w)
    # quicker than a reduction over three neighbours in memory
    red, green, blue = torch.split(images, 1, dim=1)
    value = torch.maximum(torch.maximum(red, green), blue)
    return value, value - torch.minimum(torch.minimum(red, green), blue)


def _mirrored(index: Tensor, size: int) -> Tensor:
    """Reflection without repeating the border: -1 is 1, size is size - 2."""
    return size - 1 - (size - 1 - index.abs()).abs()
