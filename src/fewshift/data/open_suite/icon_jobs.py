"""What emoji and icons share: class lists that name icons of `@iconify-json` sets."""

from __future__ import annotations

from collections.abc import Callable

from fewshift.data.open_suite.iconify import read_icon_set
from fewshift.data.open_suite.source import Archives, ClassList
from fewshift.types import SPLITS


def package_of(icon_set: str) -> str:
    """The npm package of an icon set."""
    return f"@iconify-json/{icon_set}"


def icon_packages(classes: ClassList) -> tuple[str, ...]:
    """The packages that the list draws on."""
    sets = {icon_set for split in SPLITS for pictures in classes[split].values() for icon_set in pictures}
    return tuple(package_of(icon_set) for icon_set in sorted(sets))


def icon_jobs(classes: ClassList, side: int) -> Callable[[Archives], Callable[[int], list[str]]]:
    """A reader: archives -> class id -> the SVG documents of its images."""
    listed = [pictures for split in SPLITS for pictures in classes[split].values()]

    def open_sets(archives: Archives) -> Callable[[int], list[str]]:
        names = {icon_set for pictures in listed for icon_set in pictures}
        sets = {name: read_icon_set(archives[package_of(name)]) for name in sorted(names)}
        return lambda class_id: [sets[name].svg(icon, side) for name, icon in listed[class_id].items()]

    return open_sets
