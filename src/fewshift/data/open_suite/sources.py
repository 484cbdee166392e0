"""The domains of the open suite, in the order of tables."""

from __future__ import annotations

from functools import cache

from fewshift.data.open_suite import cifar10, fashion, glyphs, icons, mnist, quickdraw
from fewshift.data.open_suite.source import Source


@cache
def sources() -> dict[str, Source]:
    """Every domain by name."""
    makers = (
        quickdraw.source,
        icons.emoji_source,
        icons.source,
        glyphs.source,
        glyphs.scripts_source,
        mnist.source,
        fashion.source,
        cifar10.source,
    )
    return {source.name: source for source in (make() for make in makers)}
