"""Images of every kind are read alike, and what is no image is refused by a sentence."""

import io
import re
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import fewshift as fs
from fewshift.data.pixels import PROTOCOL_84
from fewshift.estimator.inputs import items_of, read
from fewshift.estimator.labels import as_labels, class_array, encode
from fewshift.nets.kit import Kit

Pictures = Callable[..., tuple[list[Any], list[str]]]


@pytest.fixture
def picture(pictures: Pictures) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.ascontiguousarray(pictures(1, 1)[0][0])


def test_paths_pictures_bytes_arrays_and_tensors_are_one_image(picture: Any, tmp_path: Path) -> None:
    path = tmp_path / "one.png"
    Image.fromarray(picture).save(path)
    channels_first = picture.transpose(2, 0, 1)
    kinds = [
        path,
        str(path),
        Image.fromarray(picture),
        Image.open(path),
        path.read_bytes(),
        picture,
        channels_first,
        picture.astype(np.float32) / 255,
        picture.astype(np.int64),
        torch.from_numpy(channels_first.copy()),
        torch.from_numpy(channels_first.copy()).double() / 255,
    ]
    found = read(kinds, PROTOCOL_84)
    assert found.images.shape == (len(kinds), 3, 84, 84)
    for image in found.images:
        assert torch.equal(image, found.images[0])
    assert found.names[0] == str(path)
    assert found.names[5] == "image 5"


def test_tensors_of_sixteen_bits() -> None:
    half = torch.linspace(0, 1, 3 * 8 * 8).reshape(3, 8, 8).bfloat16()
    coloured = torch.cat([half, torch.ones(1, 8, 8).bfloat16()])
    found = read([half, half.float(), coloured], PROTOCOL_84).images
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_floats_that_a_resize_left_just_outside(picture: Any) -> None:
    near = picture.astype(np.float64) / 255
    near[0, 0], near[-1, -1] = [1 + 2e-16, 1.001, 1], [-1e-9, -0.001, 0]
    within = near.clip(0, 1)
    pair = [Image.fromarray(floats[..., 0].astype(np.float32)) for floats in (near, within)]
    for one, other in ((near, within), (torch.from_numpy(near), torch.from_numpy(within)), pair):
        assert torch.equal(read([one], PROTOCOL_84).images, read([other], PROTOCOL_84).images)


def test_batches_of_arrays_and_tensors(picture: Any) -> None:
    batch = np.stack([picture, picture[::-1]])
    wanted = read([picture, picture[::-1]], PROTOCOL_84).images
    for images in (batch, batch.transpose(0, 3, 1, 2), torch.from_numpy(batch.transpose(0, 3, 1, 2).copy())):
        assert torch.equal(read(items_of(images), PROTOCOL_84).images, wanted)


def test_columns_of_paths_and_of_pictures(picture: Any, tmp_path: Path) -> None:
    path = tmp_path / "one.png"
    Image.fromarray(picture).save(path)
    column = np.empty(2, dtype=object)
    column[:] = [str(path), Image.fromarray(picture)]
    table = np.array([[str(path)], [str(path)]])
    for images in (np.array([str(path), str(path)]), column, (p for p in (path, path)), table, Table(table)):
        assert len(read(items_of(images), PROTOCOL_84)) == 2


class Table:
    """As pandas has it: an array with a heading, and the heading is what it iterates over."""

    ndim = 2

    def __init__(self, values: Any) -> None:
        self.values = values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self.values

    def __iter__(self) -> Iterator[str]:
        return iter(("path",))


def _saved(picture: Image.Image, **options: Any) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, **options)
    return buffer.getvalue()


def test_every_mode_of_picture_becomes_rgb(picture: Any) -> None:
    rgb = Image.fromarray(picture)
    grey = rgb.convert("L")
    deep = Image.fromarray(np.asarray(grey).astype(np.uint16) * 257)
    turned = Image.Exif()
    turned[0x0112] = 3
    modes = {
        "grey": grey,
        "palette": rgb.quantize(16),
        "alpha": rgb.convert("RGBA"),
        "grey and alpha": grey.convert("LA"),
        "cmyk": rgb.convert("CMYK"),
        "16 bit": deep,
        "1 bit": rgb.convert("1"),
    }
    files = {
        "alpha file": _saved(rgb.convert("RGBA"), format="PNG"),
        "16-bit file": _saved(deep, format="PNG"),
        "cmyk file": _saved(rgb.convert("CMYK"), format="JPEG"),
        "animated": _saved(rgb, format="GIF", save_all=True, append_images=[grey.convert("RGB")]),
        "1 x 1": _saved(Image.new("RGB", (1, 1), "red"), format="PNG"),
    }
    found = read([*modes.values(), *files.values()], PROTOCOL_84).images
    assert torch.isfinite(found).all()
    assert found.min() >= -1 - 1e-5
    assert found.max() <= 1 + 1e-5
    by_name = dict(zip([*modes, *files], found, strict=True))
    exact = read([rgb, grey], PROTOCOL_84).images
    assert torch.equal(by_name["alpha"], exact[0])
    assert torch.equal(by_name["16 bit"], exact[1])
    upright = read([_saved(rgb, format="JPEG", quality=95)], PROTOCOL_84).images[0]
    upside_down = read([_saved(rgb, format="JPEG", quality=95, exif=turned)], PROTOCOL_84).images[0]
    assert (upright.flip((1, 2)) - upside_down).abs().max() < 1e-4
    lazily = Image.open(io.BytesIO(_saved(rgb, format="JPEG", quality=95, exif=turned)))
    assert torch.equal(read([lazily], PROTOCOL_84).images[0], upside_down)


def test_arrays_with_alpha_are_laid_on_white(picture: Any) -> None:
    alpha = np.full((*picture.shape[:2], 1), 100, np.uint8)
    both = np.concatenate([picture, alpha], axis=2)
    kinds = [
        Image.fromarray(both),
        both,
        both.transpose(2, 0, 1),
        both / 255,
        torch.from_numpy(both.transpose(2, 0, 1).copy()),
    ]
    found = read(kinds, PROTOCOL_84).images
    assert all(torch.equal(image, found[0]) for image in found)
    assert found[0].mean() > read([picture], PROTOCOL_84).images[0].mean()


@pytest.mark.parametrize(
    ("images", "sentence"),
    [
        (np.zeros((5, 10)), "rows of numbers are no images"),
        (np.zeros((8, 8, 3), np.uint8), "one image must stand in a list"),
        (torch.zeros(3, 8, 8), "one image must stand in a list"),
        (np.zeros((2, 8, 8, 5), np.uint8), r"image 0: its shape is \(8, 8, 5\)"),
        ([np.full((8, 8, 3), 300.0)], "floats from 0 to 1"),
        ([np.full((8, 8, 3), np.nan)], "floats from 0 to 1"),
        ([torch.randn(3, 8, 8)], "floats from 0 to 1"),
        ([object()], "image 0 is of type object"),
        ([np.full((8, 8, 3), "7")], "image 0: values of type <U1: give integers"),
        (np.zeros((2, 8, 8, 3), object), "image 0: values of type object: give integers"),
        (np.array([["a.jpg", "bird"]]), r"a table of shape \(1, 2\)"),
        ({"a.jpg": 1}, "of type dict"),
        ({"a.jpg"}, "of type set"),
        (io.BytesIO(b"a picture"), "of type BytesIO"),
        (3, "of type int"),
        ([], "there are no images"),
        ("nowhere.jpg", "nowhere.jpg: the file cannot be read"),
        ([b"text that is no picture"], "image 0: this is no picture"),
    ],
)
def test_what_is_no_image_is_refused(images: Any, sentence: str) -> None:
    with pytest.raises(fs.FewshiftError, match=sentence):
        read(items_of(images), PROTOCOL_84)


def test_bad_files_are_named(tmp_path: Path, picture: Any) -> None:
    text = tmp_path / "note.jpg"
    text.write_text("not a picture")
    cut = tmp_path / "cut.png"
    cut.write_bytes(_saved(Image.fromarray(picture), format="PNG")[:60])
    huge = tmp_path / "huge.png"
    huge.write_bytes(_png_header(20_000, 20_000))
    for path, what in ((text, "no picture"), (cut, "damaged or cut short"), (huge, "20,000 x 20,000 pixels")):
        with pytest.raises(fs.FewshiftError, match=re.escape(str(path)) + ".*" + what):
            read([path], PROTOCOL_84)
    with pytest.raises(fs.FewshiftError, match=r"'a\\x00b.jpg' holds a zero byte"):
        read(["a\0b.jpg"], PROTOCOL_84)
    with pytest.raises(fs.FewshiftError, match="no images in this folder"):
        items_of(_empty(tmp_path))


def _empty(folder: Path) -> Path:
    (folder / "empty").mkdir()
    return folder / "empty"


def _png_header(width: int, height: int) -> bytes:
    def chunk(body: bytes) -> bytes:
        return struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))

    size = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(size) + chunk(b"IDAT" + zlib.compress(b"")) + chunk(b"IEND")


class NotAvailable:
    """As pandas marks a missing text or whole number: no comparison with it is true or false."""

    def __ne__(self, other: object) -> Any:
        return self

    def __bool__(self) -> bool:
        raise TypeError("boolean value of NA is ambiguous")

    def __repr__(self) -> str:
        return "<NA>"


@pytest.mark.parametrize(
    ("labels", "sentence"),
    [
        (["a", "a", "a", "a"], "there is one class only, 'a'"),
        (["a", "b"], "4 images and 2 labels"),
        (["a", "b", "a", ["c"]], "label 3 is .* cannot name a class"),
        ([1, 0, float("nan"), 0], r"label 2 is missing \(nan\)"),
        ([1, 0, NotAvailable(), 0], r"label 2 is missing \(<NA>\)"),
        (dict.fromkeys("abcd", 1), "give a list with one label an image"),
        ({1, 2, 3, 4}, "give a list with one label an image"),
        ([1, 0, True, 0], "the labels 1 and True are equal"),
        (list(torch.tensor([[0], [0], [1], [1]])), "label 0 is .* cannot name a class"),
        ("abcd", "give a list with one label an image"),
        (7, "give a list with one label an image"),
        (None, "the target y is None"),
    ],
)
def test_bad_labels_are_refused(small_kit: Kit, pictures: Pictures, labels: Any, sentence: str) -> None:
    with pytest.raises(fs.FewshiftError, match=sentence):
        fs.FewShotClassifier(kit=small_kit).fit(pictures(2, 2)[0], labels)


def test_a_link_back_up_is_not_followed(tmp_path: Path) -> None:
    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "up").symlink_to(tmp_path)
    assert items_of(tmp_path) == [tmp_path / "a.png"]


def test_bad_folders_are_refused(small_kit: Kit, folder: Path) -> None:
    classifier = fs.FewShotClassifier(kit=small_kit)
    with pytest.raises(fs.FewshiftError, match="not there"):
        classifier.fit(folder / "nowhere")
    with pytest.raises(fs.FewshiftError, match="4 images and no class folders"):
        classifier.fit(folder / "shape 0")
    (folder / "hollow").mkdir()
    with pytest.raises(fs.FewshiftError, match="'hollow' has no image"):
        classifier.fit(folder)
    (folder / "hollow" / "IMG_1.HEIC").write_bytes(b"a phone's picture")
    with pytest.raises(fs.FewshiftError, match=r"no image \(IMG_1.HEIC: its name is not that of a JPEG"):
        classifier.fit(folder)
    (folder / "hollow" / "IMG_1.HEIC").unlink()
    (folder / "hollow").rmdir()
    (folder / "Shape 0").mkdir()
    with pytest.raises(fs.FewshiftError, match="have one name but for case"):
        classifier.fit(folder)


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"method": "magic"}, "no method 'magic'"),
        ({"settings": "best"}, "settings is 'best'"),
        ({"device": "abacus"}, "device 'abacus' cannot be used"),
        ({"engine": "steam"}, "no engine 'steam'"),
        ({"precision": "float16"}, "float16 cannot be had here"),
        ({"engine": "plain", "precision": "bfloat16"}, "the plain engine computes in float32 on cpu"),
        ({"kit": "nowhere.kit"}, "no kit 'nowhere.kit'"),
        ({"seed": "x"}, "seed is 'x'"),
        ({"seed": 2**64}, "at most 64 bits"),
        ({"kit": 5}, "kit is of type int"),
    ],
)
def test_bad_parameters_are_refused_at_fit(
    small_kit: Kit, pictures: Pictures, parameters: dict[str, Any], sentence: str
) -> None:
    classifier = fs.FewShotClassifier(**{"kit": small_kit, "device": "cpu", **parameters})
    with pytest.raises(fs.FewshiftError, match=sentence):
        classifier.fit(*pictures(2, 2))


def test_tsp_needs_its_parts(small_kit: Kit, pictures: Pictures) -> None:
    bare = Kit(small_kit.backbone, small_kit.images)
    with pytest.raises(fs.FewshiftError, match="needs a kit with preconditioners"):
        fs.FewShotClassifier(kit=bare).fit(*pictures(2, 2))
    assert fs.FewShotClassifier(kit=bare, method="tsa").fit(*pictures(2, 2)).coefficients_ == {}


def test_labels_are_encoded_in_order() -> None:
    classes, codes = encode(as_labels(np.array([3, 1, 3], np.int32)))
    assert (classes.tolist(), codes) == ([1, 3], [1, 0, 1])
    classes, codes = encode([("b",), None, ("b",)])
    assert (classes.tolist(), codes) == ([("b",), None], [0, 1, 0])
    assert class_array(["a\x00", "b"]).tolist() == ["a\x00", "b"]
    assert class_array([10**30, 1]).tolist() == [10**30, 1]
