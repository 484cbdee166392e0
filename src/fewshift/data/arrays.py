"""Images that are in memory already, as a domain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from fewshift.data.class_split import ALL_TEST, ClassSplit, check_names, split_spec
from fewshift.data.decoding import SLACK, from_picture
from fewshift.data.domain import Domain, Item, Pixels, Provenance, Role
from fewshift.errors import DataError

IN_MEMORY = Provenance(origin="arrays in memory")


@dataclass(frozen=True)
class ArraySource:
    """Images in memory, by class id."""

    images: tuple[tuple[Pixels, ...], ...]

    def read(self, items: Sequence[Item]) -> list[Pixels]:
        """The images at these places."""
        return [self.images[class_id][index] for class_id, index in items]


def array_domain(
    name: str,
    images: Sequence[Any] | NDArray[Any],
    labels: Sequence[int] | Sequence[str] | ArrayLike,
    *,
    class_names: Sequence[str] | None = None,
    split: ClassSplit = ALL_TEST,
    role: Role = "unseen",
    provenance: Provenance = IN_MEMORY,
) -> Domain:
    """A domain of arrays or tensors with their labels.

    An image is (h, w), (h, w, 1 or 3) or (1 or 3, h, w): 8-bit levels, or floats from 0 to 1. Labels are
    class names, or integers from 0 without a gap, whose names `class_names` gives.
    """
    names = _names(labels, class_names, name)
    if len(names) != len(images):
        raise DataError(f"{name}: {len(images)} images and {len(names)} labels: give each image its label")
    order = tuple(class_names) if class_names is not None else tuple(sorted(set(names), key=_natural))
    check_names(order, name)
    by_class: dict[str, list[Pixels]] = {c: [] for c in order}
    for place, (image, label) in enumerate(zip(images, names, strict=True)):
        by_class[label].append(as_pixels(image, f"{name}, image {place}"))
    spec = split_spec(name, {c: len(members) for c, members in by_class.items()}, split, name)
    return Domain(spec, ArraySource(tuple(tuple(by_class[c]) for c in spec.class_names)), role, provenance)


def as_pixels(image: Any, where: str) -> Pixels:  # (h, w, 1 or 3)
    """An array, tensor or Pillow image as 8-bit pixels, channels last."""
    if isinstance(image, Image.Image):
        return from_picture(image, where)
    is_tensor = hasattr(image, "detach")
    if is_tensor:
        image = image.detach().cpu()
        image = image.float() if image.is_floating_point() else image  # numpy has no bfloat16
    values = np.asarray(image)
    if values.ndim == 2:
        values = values[..., None]
    elif values.ndim == 3 and values.shape[0] in (1, 3) and (is_tensor or values.shape[2] not in (1, 3)):
        values = values.transpose(1, 2, 0)  # channels first, as tensors have them
    if values.ndim != 3 or values.shape[2] not in (1, 3):
        raise DataError(
            f"{where}: its shape is {values.shape}: give (h, w), (h, w, 3) or (3, h, w), grey or RGB"
        )
    if min(values.shape) < 1:
        raise DataError(f"{where}: its shape is {values.shape}: it has no pixels, take it out")
    return _levels(values, where)


def _levels(values: NDArray[Any], where: str) -> Pixels:
    if values.dtype == np.uint8:
        return np.ascontiguousarray(values)
    kind, what = values.dtype.kind, f"values of type {values.dtype}"
    if kind == "b":
        return np.asarray(values * 255, np.uint8)
    if kind in "fiu":
        low, high = values.min(), values.max()
        if kind == "f" and low > -SLACK and high < 1 + SLACK:
            return np.asarray(np.rint(values.clip(0, 1) * 255), np.uint8)
        if kind in "iu" and low >= 0 and high <= 255:
            return np.ascontiguousarray(values, np.uint8)
        what += f" from {low} to {high}"
    raise DataError(f"{where}: {what}: give integers from 0 to 255 or floats from 0 to 1")


def _names(labels: Any, class_names: Sequence[str] | None, where: str) -> list[str]:
    values = np.asarray(labels).tolist() if not isinstance(labels, list | tuple) else list(labels)
    if all(isinstance(value, str) for value in values):
        if class_names is not None and (unknown := set(values) - set(class_names)):
            raise DataError(f"{where}: the label {min(unknown)!r} is not among the class names: add it there")
        return values
    numbers = [_number(value, where) for value in values]
    used = set(numbers)
    known = range(len(class_names) if class_names is not None else max(numbers, default=-1) + 1)
    if missing := [number for number in known if number not in used]:
        raise DataError(
            f"{where}: no image has the label {missing[0]}, and labels run from 0 to {known.stop - 1}: "
            "number the classes without a gap, or give names as labels"
        )
    if outside := sorted(used - set(known)):
        wrong = outside[0] if outside[0] < 0 else outside[-1]
        raise DataError(
            f"{where}: the label {wrong} is outside 0 to {known.stop - 1}: number the classes from 0"
        )
    return [class_names[number] if class_names is not None else str(number) for number in numbers]


def _number(value: Any, where: str) -> int:
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise DataError(
            f"{where}: the label {value!r} is no class name and no whole number: give one of these"
        )
    return int(value)


def _natural(name: str) -> tuple[int, int, str]:
    """Numbers by size, then names by letter."""
    return (0, int(name), name) if name.isdecimal() else (1, 0, name)
