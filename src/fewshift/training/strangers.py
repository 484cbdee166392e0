"""Tasks in made-up styles, as if from a domain that was not trained on.

A task of some training domain is taken as it is, and all its images, support and query, go through the same
random change: turned, inverted, seen through a random filter, drawn in two colours, coarsened. Its classes
stay what they were; its look is one that the extractor has never seen. What all domains share (the common
starting value, and P where it is blended) learns from such tasks what helps on new domains. Our own; not in
the paper.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import asdict, dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from fewshift.data.resident import to_device
from fewshift.errors import FewshiftError
from fewshift.training.tasks import AroundTasks, ResidentTasks
from fewshift.training.varied import VariedTasks, with_images
from fewshift.types import Address, Episode


@dataclass(frozen=True, kw_only=True)
class Styles:
    """How often each change happens, and how far it goes."""

    turned: float = 0.5  # by a multiple of 90 degrees, and mirrored half of the time
    filtered: float = 0.8  # through a random filter of three channels
    sizes: tuple[int, ...] = (1, 3, 5)  # of that filter
    most_kept: float = 0.7  # of the image itself beside what the filter makes of it
    two_colours: float = 0.25
    inverted: float = 0.4
    coarse: float = 0.25
    coarsest: float = 0.25  # the smallest size before it is enlarged again, as a share


@dataclass(frozen=True)
class Style:
    """One change, drawn."""

    turns: int
    mirrored: bool
    kernel: NDArray[np.float32] | None  # (3, 3, s, s)
    kept: float  # share of the image itself beside what the filter makes of it
    colours: NDArray[np.float32] | None  # (2, 3): of black and of white, in [-1, 1]
    inverted: bool
    size: float  # 1: as it is


def draw_style(styles: Styles, generator: np.random.Generator) -> Style:
    """The change of one task."""
    turned, filtered, two, inverted, coarse = generator.uniform(size=5)
    turns, mirrored = int(generator.integers(0, 4)), bool(generator.integers(0, 2))
    side = int(generator.choice(styles.sizes))
    kernel = generator.normal(0, 1 / math.sqrt(3 * side * side), (3, 3, side, side)).astype(np.float32)
    kept = float(styles.most_kept * generator.uniform())
    colours = generator.uniform(-1, 1, (2, 3)).astype(np.float32)
    size = float(generator.uniform(styles.coarsest, 1))
    is_turned = turned < styles.turned
    return Style(
        turns=turns if is_turned else 0,
        mirrored=mirrored and is_turned,
        kernel=kernel if filtered < styles.filtered else None,
        kept=kept,
        colours=colours if two < styles.two_colours else None,
        inverted=inverted < styles.inverted,
        size=size if coarse < styles.coarse else 1.0,
    )


def restyled(images: Tensor, style: Style) -> Tensor:  # (n, 3, h, w) in [-1, 1] -> the same
    """All images in this style; their spread over the task stays that of the images."""
    if style.turns:
        images = torch.rot90(images, style.turns, (2, 3))
    if style.mirrored:
        images = images.flip(3)
    if style.size < 1:
        height, width = images.shape[2:]
        small = (max(2, round(style.size * height)), max(2, round(style.size * width)))
        images = F.interpolate(
            F.adaptive_avg_pool2d(images, small), (height, width), mode="bilinear", align_corners=False
        )
    if style.colours is not None:
        black, white = to_device(style.colours, images.device)[:, :, None, None]
        grey = images.mean(dim=1, keepdim=True) / 2 + 0.5
        images = black + (white - black) * grey
    if style.kernel is not None:
        kernel = to_device(style.kernel, images.device)
        edge = kernel.shape[-1] // 2
        seen = F.conv2d(F.pad(images, (edge,) * 4, mode="replicate"), kernel)
        mixed = style.kept * images + (1 - style.kept) * seen
        mean, spread = mixed.mean(dim=(0, 2, 3), keepdim=True), mixed.std(dim=(0, 2, 3), keepdim=True)
        images = (mixed - mean) / spread.clamp_min(1e-3) * images.std() + images.mean()
    if style.inverted:
        images = -images
    return images.clamp(-1, 1).contiguous()


@dataclass(frozen=True)
class StrangerTasks(AroundTasks):
    """The tasks of a source, and beside its domains a number of strangers that have TRAIN tasks only."""

    tasks: ResidentTasks | VariedTasks
    count: int
    styles: Styles = Styles()

    def __post_init__(self) -> None:
        if self.count < 1:
            raise FewshiftError(f"{self.count} strangers: give 1 or more")

    @property
    def strangers(self) -> tuple[str, ...]:
        """Names that task addresses may have beside the domains'."""
        return tuple(f"stranger {number}" for number in range(1, self.count + 1))

    def episode(self, address: Address) -> Episode:
        """The task at this address; a stranger's come from all domains in turn."""
        if address.domain not in self.strangers:
            return self.tasks.episode(address)
        key = hashlib.sha256(f"{address.seed} {address.domain}".encode()).digest()
        seed = int.from_bytes(key[:6], "big")
        index, place = divmod(address.index, len(self.domains))
        found = self.tasks.episode(Address(seed, self.domains[place], address.split, index))
        style = draw_style(self.styles, np.random.default_rng([seed, address.index]))
        made = with_images(found, lambda images: restyled(images, style))
        return replace(made, task=replace(made.task, seen=False), address=address)

    def identity(self) -> dict[str, object]:
        """What decides the tasks."""
        return {**self.tasks.identity(), "strangers": {"count": self.count, "styles": asdict(self.styles)}}
