"""Plain WebP pictures, without the layers around the decoder.

Of the 190 microseconds that Pillow takes for a WebP of 84 pixels, 100 go into making and copying image
objects, under the interpreter's lock. Tasks have hundreds of such pictures, so its decoder is called directly
here. It is not a public part of Pillow: where it is missing or behaves otherwise the answer is None, and the
caller goes the usual way, which also finds the words for what is wrong with a damaged picture.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fewshift.data.domain import Pixels

MAX_SIDE = 2048  # larger pictures gain nothing here


def _find_decoder() -> Callable[[bytes], Any] | None:
    try:
        from PIL._webp import WebPAnimDecoder
    except ImportError:
        return None
    decoder: Callable[[bytes], Any] = WebPAnimDecoder
    return decoder


_decoder = _find_decoder()


def plain_webp(encoded: bytes) -> Pixels | None:  # (h, w, 3)
    """The picture, if the file is a WebP without transparency, animation and notes; None for all others."""
    if encoded[:4] != b"RIFF" or encoded[8:16] != b"WEBPVP8 " or _decoder is None:
        return None
    width, height = (int.from_bytes(encoded[at : at + 2], "little") & 0x3FFF for at in (26, 28))
    if not (0 < width <= MAX_SIDE and 0 < height <= MAX_SIDE):
        return None
    try:
        decoder = _decoder(encoded)
        size, _, _, frames, mode = decoder.get_info()
        if (size, frames, mode) != ((width, height), 1, "RGBX"):
            return None
        content, _ = decoder.get_next()
        # Copied, because a view of bytes could not be written to.
        return np.frombuffer(bytearray(content), np.uint8).reshape(height, width, 4)[..., :3]
    except Exception:  # whatever a damaged file or another version of Pillow makes of it
        return None
