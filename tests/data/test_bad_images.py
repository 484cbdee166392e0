"""Broken pictures are refused in one sentence."""

import struct
import tracemalloc
import zlib

import numpy as np
import pytest
from encoded_images import encoded, photograph
from PIL import Image

from fewshift.data.decoding import MAX_PIXELS, decode
from fewshift.errors import DataError


def refusal(data: bytes, where: str = "birds/tit/7.jpg") -> str:
    with pytest.raises(DataError) as caught:
        decode(data, where)
    sentence = str(caught.value)
    assert sentence.startswith(f"{where}: ")
    assert "\n" not in sentence
    return sentence


def png_header(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 1000))


def bmp_header(width: int, height: int) -> bytes:
    return b"BM" + struct.pack("<IHHIIiiHHIIiiII", 54, 0, 0, 54, 40, width, height, 1, 24, 0, 0, 0, 0, 0, 0)


def gif_header(width: int, height: int) -> bytes:
    screen = struct.pack("<HHBBB", width, height, 0x80, 0, 0) + b"\0" * 6
    return b"GIF89a" + screen + b"," + struct.pack("<HHHHB", 0, 0, width, height, 0) + b"\x02\x01\x00\x00;"


def webp_header(width: int, height: int) -> bytes:
    bits = 0x2F | (width - 1) << 8 | (height - 1) << 22
    payload = struct.pack("<Q", bits)[:5] + b"\0" * 11
    return (
        b"RIFF"
        + struct.pack("<I", 12 + len(payload))
        + b"WEBPVP8L"
        + struct.pack("<I", len(payload))
        + payload
    )


def jpeg_header(width: int, height: int) -> bytes:
    small = encoded(photograph(), "JPEG")
    at = small.index(b"\xff\xc0")
    return small[: at + 5] + struct.pack(">HH", height, width) + small[at + 9 :]


def tiff_header(width: int, height: int) -> bytes:
    small = encoded(photograph(), "TIFF")
    for tag, old, new in ((256, 60, width), (257, 40, height)):
        entry = struct.pack("<HHII", tag, 4, 1, old)
        assert entry in small
        small = small.replace(entry, struct.pack("<HHII", tag, 4, 1, new))
    return small


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (png_header(20_000, 20_000), "20,000 x 20,000"),
        (bmp_header(20_000, 20_000), "20,000 x 20,000"),
        (gif_header(20_000, 20_000), "20,000 x 20,000"),
        (jpeg_header(20_000, 20_000), "20,000 x 20,000"),
        (tiff_header(20_000, 20_000), "20,000 x 20,000"),
        (b"P6 20000 20000 255\n", "20,000 x 20,000"),
        (webp_header(16_000, 16_000), "16,000 x 16,000"),
        (png_header(2**31 - 1, 2**31 - 1), "2,147,483,647 x 2,147,483,647"),
    ],
    ids=["png", "bmp", "gif", "jpeg", "tiff", "ppm", "webp", "forged"],
)
def test_enormous_pictures_are_refused_from_their_header(data: bytes, size: str) -> None:
    tracemalloc.start()
    sentence = refusal(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (
        f"{size} pixels are over the limit of {MAX_PIXELS // 10**6} million: make the picture smaller"
        in sentence
    )
    assert peak < 2**20


def test_a_text_file_named_jpg() -> None:
    assert "this is no picture, whatever its name says: replace it by a JPEG, PNG" in refusal(
        b"hello, world\n"
    )
    assert "this is no picture" in refusal(b"<svg xmlns='http://www.w3.org/2000/svg'/>")


@pytest.mark.parametrize(("brand", "what"), [(b"heic", "a HEIC"), (b"mif1", "a HEIF"), (b"avif", "an AVIF")])
def test_what_a_phone_sends_is_named(brand: bytes, what: str) -> None:
    said = refusal(b"\0\0\0\x18ftyp" + brand + b"\0\0\0\0mif1heic")
    assert f"this is {what} picture, which is not read: replace it by a JPEG" in said
    assert "this is no picture" in refusal(b"\0\0\0\x18ftypisom")  # a film


def test_an_empty_file() -> None:
    assert "this is an empty file: replace it" in refusal(b"")


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM"])
@pytest.mark.parametrize("kept", [0.3, 0.6, 0.9])
def test_truncated_files(kind: str, kept: float) -> None:
    random = np.random.default_rng(0).integers(0, 256, (50, 50, 3), dtype=np.uint8)
    data = encoded(Image.fromarray(random), kind)
    sentence = refusal(data[: int(len(data) * kept)])
    assert "the picture is damaged or cut short" in sentence
    assert sentence.endswith("copy it again from its source or take it out")


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "PPM"])
def test_random_damage_is_a_sentence_or_a_picture(kind: str) -> None:
    data = encoded(photograph(), kind)
    random = np.random.default_rng(1)
    for _ in range(150):
        damaged = bytearray(data)
        for place in random.integers(0, min(len(data), 400), size=3):
            damaged[place] = random.integers(0, 256)
        try:
            outcome = str(decode(bytes(damaged), "x").dtype)
        except DataError as problem:
            outcome = str(problem)
        assert outcome == "uint8" or outcome.startswith("x: ")
