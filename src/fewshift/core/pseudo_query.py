"""Varied copies of support images that stand in for queries while a network is fine-tuned on them.

P>M>F's augmentation (Hu et al., CVPR 2022; confirmed from code: hushell/pmf_cvpr22): nine batches of ten are
mirrored or not as a whole, then each image's brightness, saturation and contrast change and it is shifted by
up to an eighth of its side. All numbers come from a generator that is given, so that a task repeats.
"""

from __future__ import annotations

import torch
from torch import Tensor

SHARE = 0.9  # of batches that are varied at all
REACH = 0.125  # of the side that a shift may take


def vary(images: Tensor, generator: torch.Generator) -> Tensor:  # (n, 3, h, w) -> (n, 3, h, w)
    """The images as pseudo-queries; the generator is on the CPU, so every device sees the same ones."""
    varied, mirrored = (torch.rand(2, generator=generator) < torch.tensor([SHARE, 0.5])).tolist()
    colour = torch.rand(3, len(images), 1, 1, 1, generator=generator)
    reach = [int(side * REACH + 0.5) for side in images.shape[-2:]]
    shifts = [torch.randint(-r, r + 1, (len(images),), generator=generator) for r in reach]
    if not varied:
        return images
    images = images.flip(-1) if mirrored else images
    return shift(recolour(images, colour.to(images)), *(s.to(images.device) for s in shifts))


def recolour(images: Tensor, draws: Tensor) -> Tensor:  # (n, 3, h, w), (3, n, 1, 1, 1) in [0, 1]
    """Brightness by ±0.5, saturation by a factor in [0, 2], contrast by one in [0.5, 1.5]."""
    brightness, saturation, contrast = draws[0], draws[1], draws[2]
    images = images + (brightness - 0.5)
    grey = images.mean(dim=1, keepdim=True)
    images = (images - grey) * (2 * saturation) + grey
    level = images.mean(dim=(1, 2, 3), keepdim=True)
    return (images - level) * (contrast + 0.5) + level


def shift(images: Tensor, down: Tensor, right: Tensor) -> Tensor:  # (n, 3, h, w), (n,), (n,)
    """Each image moved by whole pixels; what comes in from outside is 0."""
    _, _, height, width = images.shape
    rows = torch.arange(height, device=images.device) - down[:, None]
    columns = torch.arange(width, device=images.device) - right[:, None]
    inside = ((rows >= 0) & (rows < height))[:, None, :, None] & ((columns >= 0) & (columns < width))[
        :, None, None
    ]
    flat = (rows.clamp(0, height - 1) * width)[:, :, None] + columns.clamp(0, width - 1)[:, None]
    places = flat.flatten(1)[:, None].expand(-1, images.shape[1], -1)
    return images.flatten(2).gather(2, places).view_as(images) * inside
