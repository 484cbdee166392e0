"""Pictures as files."""

import io
from typing import Any

import numpy as np
from PIL import Image


def encoded(picture: Image.Image, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def photograph(width: int = 60, height: int = 40) -> Image.Image:
    """Smooth and coloured, so that lossy formats keep it."""
    y, x = np.mgrid[0:height, 0:width]
    channels = [x * 255 / width, y * 255 / height, 255 - x * 200 / width]
    return Image.fromarray(np.stack(channels, axis=-1).astype(np.uint8))
