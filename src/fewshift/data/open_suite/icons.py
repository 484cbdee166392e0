"""Icons: a class is a concept, an image is one set's drawing of it.

Words are not always one thing, so a few per cent of the labels are arguable: a `store` may be a bag. Words
for several things (`apple`, `mouse`) and brands are left out, near-copies between sets are dropped.
"""

from __future__ import annotations

from functools import cache

from fewshift.data.open_suite.drawing import draw_svg
from fewshift.data.open_suite.icon_jobs import icon_jobs, icon_packages
from fewshift.data.open_suite.packages import licences_of
from fewshift.data.open_suite.source import Source, read_classes, spec_of

SIDE = 64


@cache
def source() -> Source:
    """The domain `icons`."""
    classes = read_classes("icons")
    packages = icon_packages(classes)
    return Source(
        spec=spec_of("icons", classes, len),
        role="seen",
        packages=packages,
        origin=f"{len(packages)} one-colour icon sets, one image each",
        licence=f"{licences_of(packages)} by set",
        attribution="the makers of the icon sets, named in ATTRIBUTION.md",
        open=icon_jobs(classes, SIDE),
        draw=draw,
        draws_svg=True,
    )


def draw(svgs: list[str]) -> list[bytes]:
    """The pictures of one class, black on white."""
    return [draw_svg(svg, "L") for svg in svgs]
