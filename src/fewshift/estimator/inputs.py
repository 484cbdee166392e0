"""Anything a user calls images, read one by one into what the network takes.

A picture is prepared as soon as it is decoded, so that memory does not grow with the size of photographs.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from fewshift.data.arrays import as_pixels
from fewshift.data.class_split import check_names
from fewshift.data.decoding import decode, from_picture
from fewshift.data.domain import Pixels
from fewshift.data.folder import SUFFIXES, list_folder, read_image, sorted_entries
from fewshift.data.pixels import PixelRule, prepare
from fewshift.errors import DataError, FewshiftError
from fewshift.estimator.labels import as_labels
from fewshift.progress import Track, silent

Images: TypeAlias = Any  # a folder, a path, a picture, an array or tensor of four dimensions, a list of these

UNORDERED = (Mapping, set, frozenset)  # or of other things than their values
AT_ONCE = 128  # images that are held at a time while others wait


@dataclass(frozen=True)
class Prepared:
    """Images as the network reads them, and what errors and hints call each."""

    images: Tensor  # (n, 3, size, size) float32, on the CPU
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.names)


def folder_items(folder: str | os.PathLike[str]) -> tuple[list[Path], list[str]]:
    """The image files of a folder with one folder per class, and the class of each."""
    path = Path(folder)
    found = list_folder(path)
    check_names(list(found.classes), str(path))
    for name, files in found.classes.items():
        if not files:
            others = [(entry, why) for entry, why in found.ignored.items() if entry.parent == path / name]
            seen = next((f" ({entry.name}: {why})" for entry, why in others if entry.name[0] != "."), "")
            raise DataError(f"{path}: the class {name!r} has no image{seen}: add some or take the folder out")
    pairs = [(file, name) for name, files in found.classes.items() for file in files]
    return [file for file, _ in pairs], [name for _, name in pairs]


def labelled_items(images: Images, labels: Any) -> tuple[list[Any], list[Hashable]]:
    """Single images and their labels, from both, or from a folder with one folder per class alone."""
    if labels is None:
        if not isinstance(images, str | os.PathLike):
            raise FewshiftError(
                "FewShotClassifier requires y to be passed, but the target y is None: "
                "give the labels after the images, or a folder a class alone"
            )
        files, names = folder_items(images)
        return [*files], [*names]
    items, known = [*items_of(images)], as_labels(labels)
    if len(items) != len(known):
        raise FewshiftError(f"{len(items)} images and {len(known)} labels: give each image its label")
    if not items:
        raise FewshiftError("there are no images: give at least one a class")
    return items, known


def items_of(images: Images) -> Sequence[Any]:
    """The single images in what the user gave."""
    if isinstance(images, str | os.PathLike):
        path = Path(images)
        return _files_under(path) if path.is_dir() else [path]
    if isinstance(images, Image.Image | bytes):
        return [images]
    if isinstance(images, np.ndarray | Tensor) or hasattr(images, "__array_interface__"):
        return _of_array(images)
    is_table = hasattr(images, "__array__") and getattr(images, "ndim", 1) == 2
    if is_table:  # as an iterable it would give its heading
        return _of_array(np.asarray(images))
    if isinstance(images, Iterable) and not (isinstance(images, UNORDERED) or hasattr(images, "read")):
        return list(images)
    raise FewshiftError(
        f"the images are of type {type(images).__name__}: "
        "give a folder, or a list of paths, pictures or arrays"
    )


def read(items: Sequence[Any], rule: PixelRule, track: Track = silent, *, first: int = 0) -> Prepared:
    """All images by the rule that the backbone was trained with; those without a name count from `first`."""
    parts = list(read_in_parts(items, rule, track, first=first))
    return Prepared(torch.cat([p.images for p in parts]), tuple(n for p in parts for n in p.names))


def read_in_parts(
    items: Sequence[Any], rule: PixelRule, track: Track = silent, *, first: int = 0
) -> Iterator[Prepared]:
    """The same, some at a time: thousands of images need no more memory than a few."""
    if not items:
        raise FewshiftError("there are no images: give at least one")
    names: list[str] = []
    images: list[Tensor] = []
    for place, item in enumerate(track(items, label="reading images", total=len(items))):
        names.append(name_of(item, first + place))
        images.append(prepare([pixels_of(item, names[-1])], rule))
        if len(images) == AT_ONCE or place == len(items) - 1:
            yield Prepared(torch.cat(images), tuple(names))
            names, images = [], []


def pixels_of(item: Any, name: str) -> Pixels:
    """One image as 8-bit pixels, upright and in RGB."""
    if isinstance(item, str | os.PathLike):
        if "\0" in name:
            raise DataError(f"{name!a} holds a zero byte, as no file's name does: give one name a line")
        return read_image(Path(item))
    if isinstance(item, bytes):
        return decode(item, name)
    if isinstance(item, Image.Image):
        return from_picture(item, name)
    if isinstance(item, Tensor | np.ndarray):
        values = item.detach().cpu() if isinstance(item, Tensor) else item
        if isinstance(values, Tensor) and values.dtype == torch.bfloat16:  # which NumPy does not have
            values = values.float()
        return _with_alpha(values, name) if _has_alpha(values) else as_pixels(values, name)
    raise FewshiftError(
        f"{name} is of type {type(item).__name__}: give a path, a picture, an array or a tensor"
    )


def _has_alpha(values: Any) -> bool:
    shape = tuple(values.shape)
    return len(shape) == 3 and 4 in (shape[0], shape[2]) and not {1, 3} & {shape[0], shape[2]}


def _with_alpha(values: Any, name: str) -> Pixels:
    """Four channels: the picture on white, as with files."""
    first = values.shape[0] == 4 and (isinstance(values, Tensor) or values.shape[2] != 4)
    both = np.asarray(values)
    both = both if first else both.transpose(2, 0, 1)
    parts = [as_pixels(part, name).reshape(*both.shape[1:], -1) for part in (both[:3], both[3:])]
    return from_picture(Image.fromarray(np.concatenate(parts, axis=2)), name)


def name_of(item: Any, place: int) -> str:
    """The path of a file; the number of anything else."""
    return str(item) if isinstance(item, str | os.PathLike) else f"image {place}"


def _of_array(images: Any) -> Sequence[Any]:
    shape = tuple(images.shape)
    if len(shape) == 4:
        return [images[place] for place in range(shape[0])]
    if len(shape) in (1, 2) and not isinstance(images, Tensor) and np.asarray(images).dtype.kind in "OUS":
        if shape[1:] in ((), (1,)):
            return list(np.asarray(images).reshape(-1).tolist())  # a column of paths or pictures
        raise FewshiftError(f"the images are a table of shape {shape}: give its one column with the images")
    remedy = {
        2: "rows of numbers are no images, reshape each row to its height, width and channels",
        3: "one image must stand in a list, and grey images need an axis for their channel",
    }.get(len(shape), "it needs four axes")
    raise FewshiftError(
        f"the array of images has shape {shape}: {remedy}; "
        "give (n, height, width, 3) or (n, 3, height, width)"
    )


def passed_over(folder: Path) -> list[Path]:
    """The files of a folder, hidden ones aside, that are not taken for images."""
    return [path for path in _walk(folder) if not _is_image(path)]


def _files_under(folder: Path) -> list[Path]:
    found = [path for path in _walk(folder) if _is_image(path)]
    if not found:
        raise DataError(f"{folder}: there are no images in this folder: give one with image files")
    return found


def _walk(folder: Path, above: tuple[Path, ...] = ()) -> Iterator[Path]:
    above = (*above, folder.resolve())
    for entry in sorted_entries(folder):
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            if entry.resolve() not in above:  # a link back up would never end
                yield from _walk(entry, above)
        else:
            yield entry


def _is_image(path: Path) -> bool:
    """By its name; a broken link counts, so that reading it says what is wrong."""
    return path.suffix.lower() in SUFFIXES and (path.is_file() or not path.exists())
