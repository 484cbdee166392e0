"""Thumbnails as `data:` addresses, for a page that loads nothing."""

from __future__ import annotations

import base64
import io

from PIL import Image

from fewshift.data.domain import Pixels

SIDE = 112  # pixels, of the longer side
QUALITY = 80


def thumbnail(pixels: Pixels, side: int = SIDE) -> str:  # (h, w, 3) uint8
    """The picture as a JPEG `data:` address, proportions kept; nothing but its pixels is in it."""
    picture = Image.fromarray(pixels)
    picture.thumbnail((side, side), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=QUALITY)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
