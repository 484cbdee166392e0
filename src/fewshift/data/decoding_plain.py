"""Plain WebP and PNG files straight to arrays: the same codecs as Pillow's plugins, without their detours.

Small pictures spend more time in a plugin's Python than in the codec, and Pillow holds the interpreter's lock
while it decodes WebP, so that threads gain nothing. Here WebP goes to the libwebp that Pillow's wheel brings,
which needs no lock, and PNG to Pillow's own decoder without the reading of chunks one by one. Only the plain
forms are read; what is animated, transparent, annotated or damaged in any way is left to the plugins.
"""

from __future__ import annotations

import ctypes
import struct
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import PIL
from PIL import Image, features

from fewshift.data.domain import Pixels

_PNG = b"\x89PNG\r\n\x1a\n"
_WEBP_HEAD = struct.Struct("<4sI4s4sI3x3sHH")  # file, chunk, frame: their sizes
_FORMS = {(1, 0): ("1", "1"), (8, 0): ("L", "L"), (8, 2): ("RGB", "RGB")}  # (bits, colour type) -> modes


def plain_pixels(encoded: bytes, most: int) -> Pixels | None:  # (h, w, 3), or (h, w, 1) grey
    """The picture, if it is plain and of `most` pixels at most."""
    if encoded[12:16] == b"VP8 ":
        return _webp(encoded, most)
    if encoded.startswith(_PNG):
        return _png(encoded, most)
    return None


def _webp(encoded: bytes, most: int) -> Pixels | None:
    decode = _libwebp()
    if decode is None or len(encoded) < _WEBP_HEAD.size:
        return None
    riff, file_size, webp, _, chunk_size, start_code, width, height = _WEBP_HEAD.unpack_from(encoded)
    if (riff, webp, start_code) != (b"RIFF", b"WEBP", b"\x9d\x01\x2a"):
        return None
    if file_size + 8 != len(encoded) or chunk_size + chunk_size % 2 + 20 != len(encoded):
        return None  # cut short, or more than one picture
    width, height = width & 0x3FFF, height & 0x3FFF
    if not 0 < width * height <= most:
        return None
    pixels: Pixels = np.empty((height, width, 3), np.uint8)
    done = decode(encoded, len(encoded), pixels.ctypes.data, pixels.nbytes, width * 3)
    return pixels if done else None


@cache
def _libwebp() -> Callable[..., Any] | None:
    """`WebPDecodeRGBInto` of the library that Pillow itself decodes with, so that all pixels are the same."""
    try:
        if not features.check("webp"):  # also loads the library, if there is one
            return None
        home = Path(PIL.__path__[0])
        bundled = [*home.parent.glob("pillow.libs/libwebp-*.so*"), *home.glob(".dylibs/libwebp.*.dylib")]
        function = ctypes.CDLL(str(bundled[0])).WebPDecodeRGBInto
    except (OSError, AttributeError, IndexError):  # Pillow was built another way: its plugin will do
        return None
    function.restype = ctypes.c_void_p
    function.argtypes = (ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    decode: Callable[..., Any] = function
    return decode


def _png(encoded: bytes, most: int) -> Pixels | None:
    chunks = _png_chunks(encoded)
    if chunks is None:
        return None
    head, data = chunks
    width, height, bits, colour, compression, filtering, interlaced = head
    form = _FORMS.get((bits, colour))
    if form is None or compression or filtering or interlaced or not 0 < width * height <= most:
        return None
    try:
        picture = Image.frombytes(form[0], (width, height), data, "zip", form[1], 0)
    except Exception:  # the plugin will say what is wrong
        return None
    raw = picture.tobytes("raw", "L" if form[0] == "1" else form[0])
    pixels: Pixels = np.frombuffer(raw, np.uint8).reshape(height, width, -1).copy()  # free to be written to
    return pixels


def _png_chunks(encoded: bytes) -> tuple[tuple[int, ...], bytes] | None:
    """The fields of the head and the compressed data of a file that has nothing else."""
    pieces: list[bytes] = []
    head: tuple[int, ...] = ()
    at, end = len(_PNG), len(encoded)
    while at + 12 <= end:
        length, kind = struct.unpack_from(">I4s", encoded, at)
        stop = at + 8 + length
        if stop + 4 > end or zlib.crc32(encoded[at + 4 : stop]) != struct.unpack_from(">I", encoded, stop)[0]:
            return None
        if kind == b"IHDR" and not head and length == 13:
            head = struct.unpack_from(">IIBBBBB", encoded, at + 8)
        elif kind == b"IDAT" and head:
            pieces.append(encoded[at + 8 : stop])
        elif kind == b"IEND" and pieces and stop + 4 == end:
            return head, b"".join(pieces)
        else:
            return None
        at = stop + 4
    return None
