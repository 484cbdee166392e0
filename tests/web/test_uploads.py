"""Uploads are checked before they are decoded, and every limit has its sentence."""

import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from fewshift.errors import FewshiftError
from fewshift.web.limits import LIMITS
from fewshift.web.uploads import ClassUploads, Upload, checked_classes, read_uploads, shown_name


def png_header(width: int, height: int) -> bytes:
    """A file that claims to be large."""
    body = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = struct.pack(">I", 9) + b"IDAT" + b"\0" * 13
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + body + struct.pack(">I", zlib.crc32(body)) + pixels


def test_whole_files_come_back(tmp_path: Path, draw: Callable[..., bytes]) -> None:
    for name, kind in (("a.png", "PNG"), ("b.jpg", "JPEG"), ("c.webp", "WEBP")):
        (tmp_path / name).write_bytes(draw("red", kind=kind))
    found = read_uploads(sorted(tmp_path.iterdir()), tmp_path)
    assert [upload.name for upload in found] == ["a.png", "b.jpg", "c.webp"]
    assert found[0].content == draw("red")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"hello", "x.png: this is no picture"),
        (b"", "x.png: this is an empty file"),
        (png_header(20_000, 20_000), "over the limit"),
        (png_header(9_000, 9_000), "9,000 x 9,000 pixels, over the limit of 40 million"),
        (b"\x89PNG\r\n\x1a\n" + b"\0" * 3, "x.png: the picture is damaged"),
        (b"x" * (LIMITS.file_bytes + 1), "x.png has 12.0 MB, over the limit of 12 MB"),
    ],
    ids=["text", "empty", "bomb", "large", "damaged", "heavy"],
)
def test_what_is_refused(tmp_path: Path, content: bytes, sentence: str) -> None:
    (tmp_path / "x.png").write_bytes(content)
    with pytest.raises(FewshiftError, match=sentence):
        read_uploads([tmp_path / "x.png"], tmp_path)


def test_only_what_was_uploaded_is_read(tmp_path: Path, draw: Callable[..., bytes]) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "secret.png"
    inside.mkdir()
    outside.write_bytes(draw("red"))
    (inside / "link.png").symlink_to(outside)
    for path in (outside, inside / ".." / "secret.png", inside / "link.png"):
        with pytest.raises(FewshiftError, match="was not uploaded here"):
            read_uploads([path], inside)
    with pytest.raises(FewshiftError, match=r"gone\.png is not here any more"):
        read_uploads([inside / "gone.png"], inside)


def some(count: int) -> tuple[Upload, ...]:
    return (Upload("x", b""),) * count


def test_classes_are_named_and_counted() -> None:
    given = [ClassUploads("  a  b ", some(1)), ClassUploads("", some(2)), ClassUploads("class 3", ())]
    assert [entry.name for entry in checked_classes(given)] == ["a b", "class 2"]


@pytest.mark.parametrize(
    ("classes", "sentence"),
    [
        ([], "none of the classes has images"),
        ([ClassUploads("a", some(1))], "1 of the classes has images"),
        ([ClassUploads("a", some(1)), ClassUploads("a ", some(1))], "two classes are called 'a'"),
        ([ClassUploads("a", some(1)), ClassUploads("b", ())], "the class 'b' has no image"),
        ([ClassUploads("a" * 61, some(1)), ClassUploads("b", some(1))], "has 61 characters"),
        ([ClassUploads("a", some(51)), ClassUploads("b", some(1))], "has 51 images: 50 are the most"),
    ],
)
def test_classes_that_cannot_be_used(classes: list[ClassUploads], sentence: str) -> None:
    with pytest.raises(FewshiftError, match=sentence):
        checked_classes(classes)


def test_all_classes_together_have_a_limit() -> None:
    with pytest.raises(FewshiftError, match="there are 205 images: 200 are the most"):
        checked_classes([ClassUploads(name, some(41)) for name in "abcde"])


def test_shown_names_are_short_and_on_one_line() -> None:
    assert shown_name("a\n\x00b\u202e.png") == "a b .png"
    assert len(shown_name("x" * 500 + ".png")) <= 40
    assert shown_name("\n") == "image"
