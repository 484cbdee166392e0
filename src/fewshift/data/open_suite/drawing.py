"""Pictures to PNG bytes: SVG through resvg, arrays through Pillow."""

from __future__ import annotations

import io
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fewshift.errors import DataError, MissingExtra


def check_resvg() -> None:
    """Say now, before anything is downloaded, when SVG cannot be drawn."""
    try:
        import resvg_py  # noqa: F401
    except ImportError as missing:
        raise MissingExtra("resvg-py, which draws the emoji and the icons,", "data") from missing


def draw_svg(svg: str, mode: Literal["RGB", "L"]) -> bytes:
    """The document on white, at the size it states, as PNG."""
    import resvg_py

    try:
        drawn = resvg_py.svg_to_bytes(svg_string=svg, background="white", skip_system_fonts=True)
    except ValueError as problem:
        raise DataError(f"resvg could not draw an icon ({problem}): its SVG begins {svg[:200]}") from problem
    return png(Image.open(io.BytesIO(drawn)).convert(mode))


def png(image: Image.Image | NDArray[np.uint8]) -> bytes:  # an image, or (h, w) or (h, w, 3) values
    """The picture as PNG."""
    if isinstance(image, np.ndarray):
        image = Image.fromarray(image)
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()
