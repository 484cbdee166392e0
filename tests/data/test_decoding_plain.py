"""The short way through the codecs gives what Pillow's plugins give, or leaves the file to them."""

import struct
import zlib
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from encoded_images import encoded
from PIL import Image

from fewshift.data import decoding
from fewshift.data.decoding import MAX_PIXELS, decode
from fewshift.data.decoding_plain import _libwebp, plain_pixels
from fewshift.data.domain import Pixels
from fewshift.data.records import RecordSource
from fewshift.data.records_folder import open_records
from fewshift.errors import DataError

needs_libwebp = pytest.mark.skipif(_libwebp() is None, reason="this Pillow brings no libwebp of its own")


def picture(mode: str, size: tuple[int, int] = (31, 17), seed: int = 0) -> Image.Image:
    levels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    levels[:, 1:] //= 2
    return Image.fromarray(levels).convert(mode)


def see_through() -> Image.Image:
    image = picture("RGBA")
    image.putalpha(100)
    return image


def by_plugin(data: bytes) -> Pixels:
    with mock.patch.object(decoding, "plain_pixels", return_value=None):
        return decode(data, "picture")


@pytest.mark.parametrize("size", [(1, 1), (2, 3), (31, 17), (84, 84), (200, 3), (501, 333)])
@pytest.mark.parametrize("mode", ["1", "L", "RGB"])
def test_plain_png(mode: str, size: tuple[int, int]) -> None:
    data = encoded(picture(mode, size), "PNG")
    plain = plain_pixels(data, MAX_PIXELS)
    assert plain is not None
    assert plain.shape == (size[1], size[0], 3 if mode == "RGB" else 1)
    assert np.array_equal(decode(data, ""), by_plugin(data))
    assert decode(data, "").shape == (size[1], size[0], 3)
    assert np.array_equal(decode(data, "", grey=True), plain)
    plain[...] = 1  # may be written to


@needs_libwebp
@pytest.mark.parametrize("size", [(1, 1), (2, 3), (31, 17), (84, 84), (200, 3), (501, 333)])
@pytest.mark.parametrize("quality", [5, 80, 100])
def test_plain_webp(size: tuple[int, int], quality: int) -> None:
    data = encoded(picture("RGB", size), "WEBP", quality=quality)
    assert data[12:16] == b"VP8 "
    plain = plain_pixels(data, MAX_PIXELS)
    assert plain is not None
    assert np.array_equal(plain, by_plugin(data))


def with_chunk(png: bytes, kind: bytes, content: bytes) -> bytes:
    """The file with one more chunk after its head."""
    chunk = struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
    return png[:33] + chunk + png[33:]


@pytest.mark.parametrize(
    "data",
    [
        encoded(picture("P"), "PNG"),
        encoded(picture("RGBA"), "PNG"),
        encoded(picture("LA"), "PNG"),
        encoded(picture("L").convert("I;16"), "PNG"),
        encoded(picture("L"), "PNG", transparency=7),
        with_chunk(encoded(picture("RGB"), "PNG"), b"tRNS", bytes(6)),
        with_chunk(encoded(picture("RGB"), "PNG"), b"eXIf", b"II*\0\x08\0\0\0\0\0\0\0\0\0"),
        encoded(picture("RGB"), "PNG") + b"more",
        encoded(picture("RGB"), "WEBP", lossless=True),
        encoded(see_through(), "WEBP"),
        encoded(picture("RGB"), "WEBP", exif=b"Exif\0\0II*\0\x08\0\0\0\0\0\0\0\0\0"),
        encoded(picture("RGB"), "WEBP", save_all=True, append_images=[picture("RGB", seed=1)]),
        encoded(picture("RGB"), "JPEG"),
        encoded(picture("RGB"), "BMP"),
        b"",
        b"RIFF",
    ],
)
def test_everything_else_is_left_to_the_plugins(data: bytes) -> None:
    assert plain_pixels(data, MAX_PIXELS) is None


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_a_limit_of_pixels_is_obeyed(kind: str) -> None:
    data = encoded(picture("RGB", (30, 20)), kind)
    assert plain_pixels(data, 599) is None


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_damaged_files_give_what_the_plugins_say(kind: str) -> None:
    """Whatever the plugins refuse is refused, and whatever both read is the same."""
    whole = encoded(picture("RGB", (24, 24)), kind)
    random = np.random.default_rng(1)
    accepted = 0
    for turn in range(400):
        data = bytearray(whole)
        if turn % 3:
            for place in random.integers(0, len(data), random.integers(1, 4)):
                data[place] = random.integers(0, 256)
        else:
            del data[int(random.integers(0, len(data))) :]
        plain = plain_pixels(bytes(data), MAX_PIXELS)
        if plain is None:
            continue
        accepted += 1
        try:
            assert np.array_equal(plain, by_plugin(bytes(data)))
        except DataError as problem:
            raise AssertionError(f"turn {turn}: the plugin refuses it: {problem}") from problem
    assert accepted < 400


def test_without_a_library_webp_goes_to_the_plugin() -> None:
    data = encoded(picture("RGB"), "WEBP")
    with mock.patch("fewshift.data.decoding_plain._libwebp", return_value=None):
        assert plain_pixels(data, MAX_PIXELS) is None
        assert np.array_equal(decode(data, ""), by_plugin(data))


@pytest.mark.data
def test_images_of_sixteen_domains(md_mini: Path) -> None:
    for domain in open_records(md_mini):
        assert isinstance(domain.source, RecordSource)
        items = [(c, count - 1) for c, count in enumerate(domain.spec.images_per_class)][:40]
        for data, image in zip(domain.source.read_encoded(items), domain.source.read(items), strict=True):
            assert np.array_equal(np.broadcast_to(image, (*image.shape[:2], 3)), by_plugin(data))
