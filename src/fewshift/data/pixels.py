"""RGB pixels to the tensor that a network reads.

Two rules, named apart so that numbers are never mixed. The protocol rule is Meta-Dataset's: straight to
84 x 84, bilinear with aligned corners, no antialias, no rounding, [-1, 1]. The practical rule is what most
published weights expect: antialiased, any size, perhaps a centre crop, mean and standard deviation.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from PIL import Image

from fewshift.data.buffers import lease
from fewshift.data.domain import Pixels
from fewshift.data.resize import Floats, resize_aligned, resize_mixed

if TYPE_CHECKING:
    from torch import Tensor

Channels: TypeAlias = tuple[float, float, float]
IMAGENET_MEAN: Channels = (0.485, 0.456, 0.406)
IMAGENET_STD: Channels = (0.229, 0.224, 0.225)
PLANES_AT_ONCE = 96  # resized together: few enough for the processor's cache, enough to be worth a call
FEW = 4  # images of a shape; so few wait for others of other shapes
MIXED_AT_ONCE = 32  # such batches at a time


@dataclass(frozen=True, slots=True)
class PixelRule:
    """How a picture becomes a tensor; recorded with every result.

    `mean` and `std` are on the scale [0, 1]. `crop` is None (the whole picture, its proportions given up) or
    the share of the shorter side that is kept: the shorter side goes to size / crop, then the centre is cut.
    """

    size: int
    kind: Literal["protocol", "practical"]
    mean: Channels = (0.5, 0.5, 0.5)
    std: Channels = (0.5, 0.5, 0.5)
    crop: float | None = None
    filter: Literal["bilinear", "bicubic"] = "bilinear"
    rounded: bool = False  # protocol only: resized values become whole grey levels, as some caches have them

    @property
    def name(self) -> str:
        """A short name for results, such as `protocol-84` or `practical-224-crop0.875`."""
        crop = "" if self.crop is None else f"-crop{self.crop:g}"
        cubic = "-bicubic" if self.filter == "bicubic" else ""
        return f"{self.kind}-{self.size}{crop}{cubic}{'-rounded' if self.rounded else ''}"


PROTOCOL_84 = PixelRule(84, "protocol")
PROTOCOL_84_ROUNDED = PixelRule(84, "protocol", rounded=True)


def practical(
    size: int,
    mean: Channels = IMAGENET_MEAN,
    std: Channels = IMAGENET_STD,
    *,
    crop: float | None = None,
    filter: Literal["bilinear", "bicubic"] = "bilinear",
) -> PixelRule:
    """Antialiased resize to any size, optionally with a centre crop, then (v / 255 - mean) / std."""
    if size < 1:
        raise ValueError(f"size is {size}: it must be at least 1 pixel")
    if crop is not None and not 0 < crop <= 1:
        raise ValueError(f"crop is {crop}: it must be above 0 and at most 1, or None for no crop")
    if min(std) <= 0:
        raise ValueError(f"std is {std}: every value must be above 0")
    return PixelRule(size, "practical", mean, std, crop, filter)


@dataclass(frozen=True, slots=True)
class Planes:
    """Images of one shape and where they belong in a batch, in increasing order."""

    places: list[int]
    levels: Pixels  # (n, c, h, w)


def prepare(images: Sequence[Pixels], rule: PixelRule) -> Tensor:  # (n, 3, size, size) float32
    """The images as the network reads them; no result depends on the other images of the batch."""
    out, tensor = lease(len(images), 3, rule.size, rule.size)
    prepare_into(out, images, rule)
    return tensor


def prepare_into(out: Floats, images: Sequence[Pixels], rule: PixelRule) -> None:  # (n, 3, size, size)
    """The same, written to `out`."""
    if rule.kind == "protocol":
        prepare_planes_into(out, _together(images), rule)
        return
    scale = np.array([1 / (255 * s) for s in rule.std], np.float32)[:, None, None]
    shift = np.array([m / s for m, s in zip(rule.mean, rule.std, strict=True)], np.float32)[:, None, None]
    for place, image in enumerate(images):
        np.multiply(_resize_antialiased(image, rule).transpose(2, 0, 1), scale, out=out[place])
        out[place] -= shift


def prepare_planes_into(out: Floats, batches: Iterable[Planes], rule: PixelRule) -> None:
    """What `prepare_into` writes by the protocol's rule, of images that come in batches of one shape."""
    few: dict[int, list[Planes]] = {}  # batches that are too small to be worth a call, by their channels
    for batch in batches:
        images, channels, height, width = batch.levels.shape
        if images > FEW or max(height, width) > rule.size:
            _resize_batch(batch, rule, out)
            continue
        few.setdefault(channels, []).append(batch)
        if len(few[channels]) == MIXED_AT_ONCE:
            _resize_mixed(few.pop(channels), rule, out)
    for waiting in few.values():
        _resize_mixed(waiting, rule, out)


def at_once(channels: int) -> int:
    """How many images of so many channels to resize together."""
    return max(1, PLANES_AT_ONCE // channels)


def _together(images: Sequence[Pixels]) -> Iterator[Planes]:
    """Images of one shape, few enough that their work stays inside the processor's cache."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for place, image in enumerate(images):
        groups.setdefault(image.shape, []).append(place)
    for (height, width, channels), group in groups.items():
        step = at_once(channels)
        for places in (group[start : start + step] for start in range(0, len(group), step)):
            # All at once: one by one, threads would keep handing the interpreter's lock to each other.
            stacked = np.concatenate([images[place].reshape(1, height, width, channels) for place in places])
            yield Planes(places, np.ascontiguousarray(stacked.transpose(0, 3, 1, 2)))


def _resize_batch(batch: Planes, rule: PixelRule, out: Floats) -> None:
    """Write the images to their places in `out`."""
    places, (images, channels, height, width) = batch.places, batch.levels.shape
    planes = batch.levels.reshape(-1, height, width)
    neighbours = places[-1] - places[0] == len(places) - 1
    scale, shift = _to_unit(rule)
    if channels == 3 and neighbours and not rule.rounded:
        target = out[places[0] : places[-1] + 1].reshape(planes.shape[0], rule.size, rule.size)
        resize_aligned(planes, rule.size, scale, shift, target)
        return
    values = resize_aligned(planes, rule.size, *((1.0, 0.0) if rule.rounded else (scale, shift)))
    where = slice(places[0], places[-1] + 1) if neighbours else places
    out[where] = _rounded(values, rule).reshape(images, channels, rule.size, rule.size)


def _resize_mixed(batches: Sequence[Planes], rule: PixelRule, out: Floats) -> None:
    """The same for batches of several shapes with one number of channels."""
    stacks = [batch.levels.reshape(-1, *batch.levels.shape[2:]) for batch in batches]
    values = resize_mixed(stacks, rule.size, *((1.0, 0.0) if rule.rounded else _to_unit(rule)))
    places = [place for batch in batches for place in batch.places]
    out[places] = _rounded(values, rule).reshape(len(places), -1, rule.size, rule.size)


def _to_unit(rule: PixelRule) -> tuple[float, float]:
    """(scale, shift) of a grey level; the protocol's are the same for all channels."""
    return 1 / (255 * rule.std[0]), rule.mean[0] / rule.std[0]


def _rounded(values: Floats, rule: PixelRule) -> Floats:
    if rule.rounded:
        scale, shift = _to_unit(rule)
        np.rint(values, out=values)
        values *= np.float32(scale)
        values -= np.float32(shift)
    return values


def _resize_antialiased(image: Pixels, rule: PixelRule) -> Pixels:  # (size, size, c)
    height, width, channels = image.shape
    picture = Image.fromarray(np.ascontiguousarray(image[..., 0] if channels == 1 else image))
    box = _centre_box(height, width, rule)
    how = Image.Resampling.BICUBIC if rule.filter == "bicubic" else Image.Resampling.BILINEAR
    resized: Pixels = np.array(picture.resize((rule.size, rule.size), how, box=box))
    return resized if channels == 3 else resized[..., None]


def _centre_box(height: int, width: int, rule: PixelRule) -> tuple[float, float, float, float]:
    """The part of the picture that a resize of the shorter side and a centre crop would keep."""
    if rule.crop is None:
        return (0, 0, width, height)
    short = int(rule.size / rule.crop)
    # In whole numbers: floats would make the shorter side one pixel less than `short` now and then.
    tall, wide = (side * short // min(height, width) for side in (height, width))
    left, top = round((wide - rule.size) / 2), round((tall - rule.size) / 2)
    across, down = width / wide, height / tall
    return (left * across, top * down, (left + rule.size) * across, (top + rule.size) * down)
