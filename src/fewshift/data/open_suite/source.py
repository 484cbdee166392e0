"""What the builder needs to know of one domain of the open suite."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeAlias

from fewshift.data.domain import Role
from fewshift.data.spec import Spec, flat_spec
from fewshift.types import SPLITS, Split

Archives: TypeAlias = Mapping[str, Path]  # package name -> its tarball
Job: TypeAlias = Any  # what `draw` needs for one class; travels to another process
ClassList: TypeAlias = Mapping[Split, Mapping[str, Any]]  # split -> class name -> its pictures


@dataclass(frozen=True)
class Source:
    """One domain: its classes, the packages it is made of, and how a class becomes PNG images.

    Reading (`open`, in the order of class ids) and drawing (`draw`) are apart, because only drawing is worth
    spreading over processes.
    """

    spec: Spec
    role: Role
    packages: tuple[str, ...]
    origin: str
    licence: str
    attribution: str
    open: Callable[[Archives], Callable[[int], Job]]
    draw: Callable[[Job], list[bytes]]
    optional: bool = False
    draws_svg: bool = False

    @property
    def name(self) -> str:
        """The domain's name."""
        return self.spec.name


def read_classes(domain: str) -> ClassList:
    """The fixed list of this domain's classes, splits and pictures."""
    text = files(__package__).joinpath("classes").joinpath(f"{domain}.json").read_text(encoding="utf-8")
    content: ClassList = json.loads(text)
    return content


def spec_of(name: str, classes: ClassList, images: Callable[[Any], int]) -> Spec:
    """The domain in integers; `images` counts the pictures of one class of the list."""
    listed = [item for split in SPLITS for item in classes[split].items()]
    counts: dict[Split, int] = {split: len(classes[split]) for split in SPLITS}
    return flat_spec(name, tuple(c for c, _ in listed), tuple(images(p) for _, p in listed), counts)


def test_only(name: str, class_names: Sequence[str], images: int) -> Spec:
    """A domain nobody trains on, with equally many images per class."""
    return flat_spec(name, tuple(class_names), (images,) * len(class_names), {"test": len(class_names)})
