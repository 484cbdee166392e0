"""Encoded bytes to RGB, with a sentence for every way in which a file can be wrong.

Every picture becomes (h, w, 3) uint8. Grey, 1-bit and palette pictures become RGB; transparency is laid on
white; CMYK is converted; 16-bit grey is scaled to 8, and so are floats from 0 to 1; of an animation the first
frame counts.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
from PIL import Image, ImageOps
from PIL.BmpImagePlugin import BmpImageFile
from PIL.GifImagePlugin import GifImageFile
from PIL.JpegImagePlugin import JpegImageFile
from PIL.PngImagePlugin import PngImageFile
from PIL.PpmImagePlugin import PpmImageFile
from PIL.TiffImagePlugin import TiffImageFile
from PIL.WebPImagePlugin import WebPImageFile

from fewshift.data.decoding_plain import plain_pixels
from fewshift.data.domain import Pixels
from fewshift.errors import DataError

MAX_PIXELS = 120_000_000  # a phone's 108-megapixel photograph passes, 20,000 x 20,000 does not
SLACK = 0.5 / 255  # of floats from 0 to 1: less than this goes in rounding, and resizing leaves as much
READABLE = "JPEG, PNG, WebP, BMP, GIF, TIFF or PPM"
_ORIENTATION = 0x0112


def decode(encoded: bytes, where: object, *, upright: bool = True, grey: bool = False) -> Pixels:
    """The picture as RGB. `str(where)` names it in errors; `upright` obeys the EXIF orientation.

    Meta-Dataset's own reader ignores that orientation: exact records are decoded with `upright=False`.
    With `grey` the result may have one channel, which stands for three equal ones.
    """
    plain = plain_pixels(encoded, MAX_PIXELS)
    if plain is not None:
        return plain if grey or plain.shape[2] == 3 else plain.repeat(3, axis=2)
    with _faults_named(where):
        picture = open_picture(encoded, where)
        if upright:
            picture.load()  # in a PNG the orientation may stand behind the pixels
            picture = _turned_upright(picture) if "exif" in picture.info else picture
        return np.array(_to_rgb(picture, where))


def from_picture(picture: Image.Image, where: str) -> Pixels:
    """A picture that Pillow has opened, as RGB and upright; the caller's own object stays as it is."""
    _check_size(picture.size, where)
    with _faults_named(where):  # a lazily opened file may turn out damaged, or be closed
        return np.array(_to_rgb(_turned_upright(picture), where))


@contextmanager
def _faults_named(where: object) -> Iterator[None]:
    """Whatever Pillow raises, as one sentence: its plugins raise a dozen kinds, some of them bare."""
    try:
        yield
    except DataError:
        raise
    except Exception as problem:
        what = str(problem).strip() or type(problem).__name__
        raise DataError(
            f"{where}: the picture is damaged or cut short ({what}): "
            "copy it again from its source or take it out"
        ) from problem


def open_picture(encoded: bytes, where: object) -> Image.Image:
    """The picture with its header read and its size checked, and no pixel decoded."""
    opener = _opener(encoded)
    if opener is None:
        what = "an empty file" if not encoded else _foreign(encoded)
        raise DataError(f"{where}: this is {what}: replace it by a {READABLE} file or take it out")
    if opener is WebPImageFile:
        _check_size(_webp_size(encoded), where)  # its plugin makes room for the canvas as soon as it opens
    picture = opener(io.BytesIO(encoded))
    _check_size(picture.size, where)
    return picture


def _foreign(encoded: bytes) -> str:
    """What a file is that no reader here takes: phones write HEIC, and give it any name when they send it."""
    if encoded[4:8] == b"ftyp":
        brand = encoded[8:12].decode("ascii", "replace").strip()
        kind = {"hei": "a HEIC", "hev": "a HEIC", "mif": "a HEIF", "msf": "a HEIF", "avi": "an AVIF"}
        if found := kind.get(brand[:3]):
            return f"{found} picture, which is not read"
    return "no picture, whatever its name says"


def _check_size(size: tuple[int, int], where: object) -> None:
    width, height = size
    if width < 1 or height < 1:
        raise DataError(f"{where}: the picture is {width} x {height} pixels: replace it or take it out")
    if width * height > MAX_PIXELS:
        raise DataError(
            f"{where}: {width:,} x {height:,} pixels are over the limit of {MAX_PIXELS // 10**6} million: "
            "make the picture smaller first"
        )


def _webp_size(encoded: bytes) -> tuple[int, int]:
    """Width and height from the first 30 bytes of a WebP file, in its three dialects."""
    kind, head = encoded[12:16], encoded[20:30]
    if kind == b"VP8X":
        return int.from_bytes(head[4:7], "little") + 1, int.from_bytes(head[7:10], "little") + 1
    if kind == b"VP8L":
        bits = int.from_bytes(head[1:5], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    width, height = int.from_bytes(head[6:8], "little"), int.from_bytes(head[8:10], "little")
    return max(width & 0x3FFF, 1), max(height & 0x3FFF, 1)  # zero is for the plugin to refuse


def _opener(encoded: bytes) -> Callable[[io.BytesIO], Image.Image] | None:
    """By the first bytes, never by the name.

    The plugins are called directly because `Image.open` warns about large pictures by a process-wide switch;
    here they are refused by a limit of our own.
    """
    head = encoded[:12]
    if head.startswith(b"\xff\xd8\xff"):
        return JpegImageFile
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return PngImageFile
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return WebPImageFile
    if head.startswith((b"GIF87a", b"GIF89a")):
        return GifImageFile
    if head.startswith(b"BM"):
        return BmpImageFile
    if head.startswith((b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")):
        return TiffImageFile
    if head[:1] == b"P" and head[1:2] in b"123456" and head[2:3].isspace():
        return PpmImageFile
    return None


def _to_rgb(picture: Image.Image, where: object) -> Image.Image:
    if picture.mode == "RGB" and "transparency" not in picture.info:
        return picture
    if picture.mode.startswith("I"):
        return _from_16_bit(picture, where)
    if picture.mode == "F":
        return _from_floats(picture, where)
    if picture.has_transparency_data:
        white = Image.new("RGBA", picture.size, "white")
        return Image.alpha_composite(white, picture.convert("RGBA")).convert("RGB")
    return picture.convert("RGB")


def _from_16_bit(picture: Image.Image, where: object) -> Image.Image:
    values = np.asarray(picture).astype(np.int64)
    if values.min() < 0 or values.max() > 65535:  # what Pillow calls I may have 32 bits
        raise DataError(
            f"{where}: the picture holds whole numbers from {values.min()} to {values.max()} where 65535 is "
            "white: save it in 8 or 16 bits"
        )
    if picture.mode == "I" and 0 < values.max() < 256:
        raise DataError(
            f"{where}: the picture holds whole numbers up to {values.max()} where 65535 is white, so it is "
            "all but black: save it in 8 bits (mode L) if 255 is its white"
        )
    return Image.fromarray(((values + 128) // 257).astype(np.uint8)).convert("RGB")  # 65535 = 255 * 257


def _from_floats(picture: Image.Image, where: object) -> Image.Image:
    values = np.asarray(picture)
    if not (values.min() > -SLACK and values.max() < 1 + SLACK):  # NaN is neither
        raise DataError(
            f"{where}: the picture holds floats from {values.min():g} to {values.max():g}: "
            "give floats from 0 to 1, or save it in 8 or 16 bits"
        )
    return Image.fromarray((values.clip(0, 1) * 255 + 0.5).astype(np.uint8)).convert("RGB")


def _turned_upright(picture: Image.Image) -> Image.Image:
    return ImageOps.exif_transpose(picture) if _is_turned(picture) else picture


def _is_turned(picture: Image.Image) -> bool:
    try:
        return picture.getexif().get(_ORIENTATION) in range(2, 9)
    except Exception:  # damaged notes about a sound picture
        return False


def is_upright_rgb_jpeg(encoded: bytes, where: str) -> bool:
    """Whether records can hold these bytes as they are: a JPEG in RGB that no note says to turn."""
    if _opener(encoded) is not JpegImageFile:
        return False
    picture = open_picture(encoded, where)
    return picture.mode == "RGB" and not ("exif" in picture.info and _is_turned(picture))
