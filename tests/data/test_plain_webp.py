"""The direct way to plain WebP pictures gives what Pillow gives, and leaves everything else to it."""

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fewshift.data import plain_webp as module
from fewshift.data.domain import Pixels
from fewshift.data.plain_webp import plain_webp


def picture(width: int, height: int, mode: str = "RGB") -> Image.Image:
    levels = np.random.default_rng(width * height).integers(
        0, 256, (height, width, len(mode)), dtype=np.uint8
    )
    return Image.fromarray(levels, mode if len(mode) != 1 else None)


def encoded(image: Image.Image, format: str = "WEBP", **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def usual(content: bytes) -> Pixels:
    return np.array(Image.open(io.BytesIO(content)).convert("RGB"))


@pytest.mark.parametrize(("width", "height"), [(1, 1), (2, 3), (32, 32), (84, 84), (53, 17), (300, 200)])
@pytest.mark.parametrize("quality", [10, 75, 100])
def test_it_equals_the_usual_way(width: int, height: int, quality: int) -> None:
    content = encoded(picture(width, height), quality=quality)
    found = plain_webp(content)
    assert found is not None
    assert found.shape == (height, width, 3)
    assert np.array_equal(found, usual(content))
    found[0, 0] = 7  # writable, as arrays from the usual way are


def test_other_files_are_left_to_the_usual_way() -> None:
    several = [picture(20, 20), picture(21, 20).resize((20, 20))]
    others = {
        "png": encoded(picture(20, 20), "PNG"),
        "jpeg": encoded(picture(20, 20), "JPEG"),
        "transparent": encoded(picture(20, 20, "RGBA")),
        "lossless": encoded(picture(20, 20), lossless=True),
        "turned": encoded(picture(20, 20), exif=b"Exif\0\0II*\0\x08\0\0\0\0\0\0\0\0\0"),
        "animated": encoded(several[0], save_all=True, append_images=several[1:]),
        "large": encoded(picture(module.MAX_SIDE + 1, 2)),
        "nothing": b"",
        "text": b"RIFF, said the dog",
    }
    assert [name for name, content in others.items() if plain_webp(content) is not None] == []


def test_damaged_files_are_left_to_the_usual_way() -> None:
    content = encoded(picture(84, 84), quality=50)
    for end in range(0, len(content) - 1, 37):
        assert plain_webp(content[:end]) is None
    changed = np.random.default_rng(0).integers(0, len(content), 300)
    for place in changed.tolist():
        damaged = content[:place] + bytes([content[place] ^ 0x55]) + content[place + 1 :]
        found = plain_webp(damaged)
        assert found is None or np.array_equal(found, usual(damaged))


def test_without_the_decoder_nothing_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    content = encoded(picture(20, 20))
    for decoder in (None, lambda content: object(), lambda content: 1 / 0):
        monkeypatch.setattr(module, "_decoder", decoder)
        assert plain_webp(content) is None
