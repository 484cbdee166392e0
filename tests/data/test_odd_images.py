"""Odd pictures are read as a person would expect."""

import struct
import zlib
from typing import Any

import numpy as np
import pytest
from encoded_images import encoded, photograph
from PIL import Image

from fewshift.data.decoding import decode
from fewshift.data.pixels import PROTOCOL_84, practical, prepare
from fewshift.errors import DataError


def test_grey_and_one_bit_become_rgb() -> None:
    grey = photograph().convert("L")
    got = decode(encoded(grey, "PNG"), "x")
    assert np.array_equal(got, np.asarray(grey)[..., None].repeat(3, axis=2))
    bits = decode(encoded(photograph().convert("1"), "PNG"), "x")
    assert set(np.unique(bits)) == {0, 255}


def test_palette_becomes_rgb() -> None:
    palette = photograph().quantize(16)
    for kind in ("PNG", "GIF", "BMP"):
        assert np.array_equal(decode(encoded(palette, kind), "x"), np.asarray(palette.convert("RGB")))


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_transparency_is_laid_on_white(kind: str) -> None:
    picture = photograph().convert("RGBA")
    alpha = np.zeros((40, 60), np.uint8)
    alpha[:20] = 255
    alpha[20:30] = 128
    picture.putalpha(Image.fromarray(alpha))
    options = {"lossless": True, "exact": True} if kind == "WEBP" else {}
    got = decode(encoded(picture, kind, **options), "x").astype(float)
    colours = np.asarray(photograph()).astype(float)
    assert np.array_equal(got[:20], colours[:20])
    assert (got[30:] == 255).all()
    assert np.abs(got[20:30] - (colours[20:30] * 128 + 255 * 127) / 255).max() <= 1


def test_every_way_to_write_transparency() -> None:
    grey = photograph().convert("LA")
    grey.putalpha(0)
    assert (decode(encoded(grey, "PNG"), "x") == 255).all()
    palette = photograph().quantize(8)
    clear = encoded(palette, "PNG", transparency=bytes([0] * 8))
    assert (decode(clear, "x") == 255).all()
    gif = encoded(Image.new("P", (5, 5), 3), "GIF", transparency=3)
    assert (decode(gif, "x") == 255).all()
    keyed = encoded(Image.new("RGB", (5, 5), (9, 8, 7)), "PNG", transparency=(9, 8, 7))
    assert (decode(keyed, "x") == 255).all()
    keyed_grey = encoded(Image.new("L", (5, 5), 9), "PNG", transparency=9)
    assert (decode(keyed_grey, "x") == 255).all()


def test_cmyk_jpeg_has_its_colours() -> None:
    got = decode(encoded(photograph().convert("CMYK"), "JPEG", quality=95), "x").astype(int)
    assert np.abs(got - np.asarray(photograph()).astype(int)).mean() < 8


def test_sixteen_bits_are_scaled_to_eight() -> None:
    values = np.array([[0, 128, 129, 257, 32768, 65535]], np.uint16)
    picture = Image.frombytes("I;16", (6, 1), values.tobytes())
    got = decode(encoded(picture, "PNG"), "x")[0, :, 0]
    assert got.tolist() == [0, 0, 1, 1, 128, 255]
    plain_pgm = b"P5 2 1 65535\n" + struct.pack(">HH", 65535, 32768)
    assert decode(plain_pgm, "x")[0, :, 0].tolist() == [255, 128]


def test_whole_numbers_that_may_be_of_eight_bits_are_not_made_black() -> None:
    levels = np.arange(12, dtype=np.int32).reshape(3, 4) * 20
    with pytest.raises(DataError, match="whole numbers up to 220 where 65535 is white"):
        decode(encoded(Image.fromarray(levels), "TIFF"), "x")
    assert decode(encoded(Image.fromarray(levels * 0), "TIFF"), "x").max() == 0
    assert decode(encoded(Image.fromarray(levels * 257), "TIFF"), "x")[..., 0].tolist() == levels.tolist()


@pytest.mark.parametrize("levels", [[0, 65536], [-1, 300], [0, 2**31 - 1]])
def test_whole_numbers_beyond_sixteen_bits_are_not_made_white(levels: list[int]) -> None:
    counts = encoded(Image.fromarray(np.array([levels], np.int32)), "TIFF")
    told = rf"x\.tif: .* from {levels[0]} to {levels[1]} where 65535 is white: save it in 8 or 16 bits"
    with pytest.raises(DataError, match=told):
        decode(counts, "x.tif")


@pytest.mark.parametrize("mode", ["RGB", "L", "P", "CMYK", "RGBA"])
def test_tiff_is_read_in_every_mode(mode: str) -> None:
    picture = photograph().quantize(16) if mode == "P" else photograph().convert(mode)
    for compression in ("raw", "tiff_lzw", "tiff_deflate"):
        got = decode(encoded(picture, "TIFF", compression=compression), "x")
        assert np.array_equal(got, np.asarray(picture.convert("RGB")))


def test_tiff_of_sixteen_bits_of_floats_of_pages_and_turned() -> None:
    values = np.array([[0, 257, 65535]], np.uint16)
    assert decode(encoded(Image.fromarray(values), "TIFF"), "x")[0, :, 0].tolist() == [0, 1, 255]
    floats = Image.fromarray(np.array([[0, 0.5, 1]], np.float32))
    assert decode(encoded(floats, "TIFF"), "x")[0, :, 0].tolist() == [0, 128, 255]
    with pytest.raises(DataError, match=r"micro\.tif: the picture holds floats from 0 to 300"):
        decode(encoded(Image.fromarray(np.array([[0, 300]], np.float32)), "TIFF"), "micro.tif")
    pages = [Image.new("RGB", (12, 9), colour) for colour in ("red", "lime")]
    assert (
        decode(encoded(pages[0], "TIFF", save_all=True, append_images=pages[1:]), "x")[0, 0] == (255, 0, 0)
    ).all()
    turned = encoded(photograph().transpose(Image.Transpose.ROTATE_90), "TIFF", tiffinfo={0x0112: 6})
    assert np.array_equal(decode(turned, "x"), np.asarray(photograph()))


def sixteen_bit_rgb_png() -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    row = b"\0" + struct.pack(">HHH", 65535, 32768, 0)
    header = struct.pack(">IIBBBBB", 1, 1, 16, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(row))
        + chunk(b"IEND", b"")
    )


def test_sixteen_bit_colour() -> None:
    assert decode(sixteen_bit_rgb_png(), "x")[0, 0].tolist() == [255, 128, 0]


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP"])
def test_of_an_animation_the_first_frame_counts(kind: str) -> None:
    frames = [Image.new("RGB", (12, 9), colour) for colour in ("red", "lime", "blue")]
    options = {"lossless": True} if kind == "WEBP" else {}
    data = encoded(frames[0], kind, save_all=True, append_images=frames[1:], duration=50, **options)
    got = decode(data, "x")
    assert got.shape == (9, 12, 3)
    assert (got == (255, 0, 0)).all()


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP"])
def test_exif_orientation_is_obeyed_unless_the_protocol_forbids(orientation: int, kind: str) -> None:
    upright = np.asarray(photograph())
    undo = {2: "FLIP_LEFT_RIGHT", 3: "ROTATE_180", 4: "FLIP_TOP_BOTTOM", 5: "TRANSPOSE", 6: "ROTATE_90"}
    undo |= {7: "TRANSVERSE", 8: "ROTATE_270"}
    as_stored = photograph()
    if orientation > 1:
        as_stored = as_stored.transpose(Image.Transpose[undo[orientation]])
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"JPEG": {"quality": 95}, "WEBP": {"lossless": True}}.get(kind, {})
    data = encoded(as_stored, kind, exif=exif, **options)
    got = decode(data, "x")
    assert got.shape == upright.shape
    assert np.abs(got.astype(int) - upright).mean() < 3
    assert decode(data, "x", upright=False).shape[:2] == as_stored.size[::-1]


def test_exif_orientation_behind_the_pixels_of_a_png_is_obeyed_too() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    data = encoded(photograph(), "PNG", exif=exif)
    begin, end = data.index(b"eXIf") - 4, data.index(b"IDAT") - 4
    late = data[:begin] + data[end:-12] + data[begin:end] + data[-12:]
    assert np.array_equal(decode(late, "x"), decode(data, "x"))
    assert decode(late, "x").shape[:2] == photograph().size


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")  # Pillow's own
def test_damaged_exif_does_not_lose_the_picture() -> None:
    data = encoded(photograph(), "JPEG", exif=b"Exif\0\0II*\0\x08\0\0\0\xff\xff garbage")
    assert decode(data, "x").shape == (40, 60, 3)


@pytest.mark.parametrize("rule", [PROTOCOL_84, practical(32, crop=0.875)], ids=lambda rule: rule.name)
def test_one_pixel_is_an_image(rule: Any) -> None:
    image = decode(encoded(Image.new("RGB", (1, 1), (0, 128, 255)), "PNG"), "x")
    got = prepare([image], rule)[0]
    assert got.shape == (3, rule.size, rule.size)
    assert all(len(plane.unique()) == 1 for plane in got)
