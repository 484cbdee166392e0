"""Drawn icons: a class is a concept or an emoji, an image is one set's drawing of it.

`icons` has one-colour sets. Words are not always one thing, so a few per cent of the labels are arguable: a
`store` may be a bag. Words for several things (`apple`, `mouse`) and brands are left out, near-copies between
sets are dropped. `emoji` has nine sets drawn apart from each other; sets that share outlines with one of
these (`fluent-emoji-high-contrast`, `emojione-monotone`, ...) are left out, so that no drawing stands on both
sides of a task.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from fewshift.data.open_suite.drawing import draw_svg
from fewshift.data.open_suite.iconify import read_icon_set
from fewshift.data.open_suite.packages import licences_of
from fewshift.data.open_suite.source import Archives, Source, read_classes, spec_of
from fewshift.types import SPLITS

SIDE = 64


@cache
def source() -> Source:
    """The domain `icons`."""
    makers = "the makers of the icon sets, named in ATTRIBUTION.md"
    return _source("icons", "{} one-colour icon sets, one image each", makers, draw_black)


@cache
def emoji_source() -> Source:
    """The domain `emoji`."""
    makers = "Google, Twitter, OpenMoji, Microsoft, Emoji One, Mozilla, Streamline"
    return _source("emoji", "nine emoji sets, one image each", makers, draw_coloured)


def draw_black(svgs: list[str]) -> list[bytes]:
    """The pictures of one class, black on white."""
    return [draw_svg(svg, "L") for svg in svgs]


def draw_coloured(svgs: list[str]) -> list[bytes]:
    """The pictures of one class, in colour on white."""
    return [draw_svg(svg, "RGB") for svg in svgs]


def _source(name: str, origin: str, makers: str, draw: Callable[[list[str]], list[bytes]]) -> Source:
    classes = read_classes(name)
    listed = [pictures for split in SPLITS for pictures in classes[split].values()]
    icon_sets = sorted({icon_set for pictures in listed for icon_set in pictures})
    packages = tuple(_package_of(icon_set) for icon_set in icon_sets)

    def open_sets(archives: Archives) -> Callable[[int], list[str]]:
        sets = {icon_set: read_icon_set(archives[_package_of(icon_set)]) for icon_set in icon_sets}
        return lambda class_id: [sets[name].svg(icon, SIDE) for name, icon in listed[class_id].items()]

    return Source(
        spec=spec_of(name, classes, len),
        role="seen",
        packages=packages,
        origin=origin.format(len(packages)),
        licence=f"{licences_of(packages)} by set",
        attribution=makers,
        open=open_sets,
        draw=draw,
        draws_svg=True,
    )


def _package_of(icon_set: str) -> str:
    return f"@iconify-json/{icon_set}"
