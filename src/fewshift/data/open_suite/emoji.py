"""Emoji: a class is an emoji, an image is one maker's drawing of it.

Nine sets drawn apart from each other. Sets that share outlines with one of these
(`fluent-emoji-high-contrast`, `emojione-monotone`, ...) are left out, so that no drawing stands on both sides
of a task.
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
    """The domain `emoji`."""
    classes = read_classes("emoji")
    packages = icon_packages(classes)
    return Source(
        spec=spec_of("emoji", classes, len),
        role="seen",
        packages=packages,
        origin="nine emoji sets, one image each",
        licence=f"{licences_of(packages)} by set",
        attribution="Google, Twitter, OpenMoji, Microsoft, Emoji One, Mozilla, Streamline",
        open=icon_jobs(classes, SIDE),
        draw=draw,
        draws_svg=True,
    )


def draw(svgs: list[str]) -> list[bytes]:
    """The pictures of one class, in colour on white."""
    return [draw_svg(svg, "RGB") for svg in svgs]
