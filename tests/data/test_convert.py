"""Raw images into records: what is kept byte for byte, what is encoded anew, what is refused."""

import gzip
import io
import json
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fewshift.data import convert as converting
from fewshift.data.class_split import DrawnSplit, read_split
from fewshift.data.convert import convert, convert_folder
from fewshift.data.convert_published import enlarged
from fewshift.data.decoding import decode
from fewshift.data.folder import folder_domain
from fewshift.data.records_folder import open_domain
from fewshift.errors import DataError
from fewshift.types import SPLITS


def picture(seed: int, size: tuple[int, int] = (40, 30)) -> Image.Image:
    small = np.random.default_rng(seed).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    return Image.fromarray(small).resize(size, Image.Resampling.BICUBIC)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "raw"
    for number, name in enumerate(["ant", "bee", "cow", "dog", "elk", "fox"]):
        (root / name).mkdir(parents=True)
        for k in range(3 + number):
            picture(10 * number + k).save(root / name / f"{k}.jpg", quality=90)
    return root


def said(work: Callable[[], object]) -> str:
    with pytest.raises(DataError) as caught:
        work()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def records_of(folder: Path, class_id: int) -> list[bytes]:
    """The images of a class file, by their JPEG marks and lengths, read without the library's own reader."""
    data, place, found = (folder / f"{class_id}.tfrecords").read_bytes(), 0, []
    while place < len(data):
        (length,) = struct.unpack_from("<Q", data, place)
        payload = data[place + 12 : place + 12 + length]
        start = payload.index(b"\xff\xd8\xff")
        found.append(payload[start : payload.rindex(b"\xff\xd9") + 2])
        place += length + 16
    return found


def test_rgb_jpegs_are_kept_byte_for_byte(tree: Path, tmp_path: Path) -> None:
    spec = convert_folder(tree, tmp_path / "zoo", DrawnSplit(0.5, 0.2, 0.3, seed=1))
    assert spec.name == "zoo"
    assert [len(spec.splits[s]) for s in SPLITS] == [3, 1, 2]
    for class_id, name in enumerate(spec.class_names):
        files = sorted((tree / name).iterdir())
        assert records_of(tmp_path / "zoo", class_id) == [file.read_bytes() for file in files]
    domain = open_domain(tmp_path / "zoo")
    assert domain.spec.fingerprint() == spec.fingerprint()
    raw = folder_domain(tree, "zoo", split={s: [spec.class_names[c] for c in spec.splits[s]] for s in SPLITS})
    items = [(c, i) for c, count in enumerate(spec.images_per_class) for i in range(count)]
    pairs = zip(domain.source.read(items), raw.source.read(items), strict=True)
    assert all(np.array_equal(a, b) for a, b in pairs)


def test_anything_else_becomes_a_jpeg_of_quality_75(tree: Path, tmp_path: Path) -> None:
    turned = Image.Exif()
    turned[0x0112] = 6
    for path in (tree / "ant").iterdir():
        path.unlink()
    picture(1).save(tree / "ant" / "a.png")
    picture(2).convert("L").save(tree / "ant" / "b.jpg")
    picture(3).convert("CMYK").save(tree / "ant" / "c.jpg")
    picture(4).save(tree / "ant" / "d.jpg", exif=turned)
    convert_folder(tree, tmp_path / "zoo", {"train": ["ant"], "test": ["bee", "cow", "dog", "elk", "fox"]})
    stored = records_of(tmp_path / "zoo", 0)
    buffer = io.BytesIO()
    picture(1).save(buffer, "JPEG", quality=75)
    assert stored[0] == buffer.getvalue()
    for name, data in zip(["a.png", "b.jpg", "c.jpg", "d.jpg"], stored, strict=True):
        want = decode((tree / "ant" / name).read_bytes(), name)
        got = decode(data, name)
        assert got.shape == want.shape
        assert np.abs(got.astype(int) - want).mean() < 12
        assert b"Exif" not in data


def test_split_from_a_file(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "split.json").write_text(
        json.dumps({"train": ["fox", "ant"], "valid": ["cow"], "test": ["bee", "elk", "dog"]})
    )
    spec = convert_folder(tree, tmp_path / "zoo", read_split(tmp_path / "split.json"))
    assert spec.class_names == ("fox", "ant", "cow", "bee", "elk", "dog")
    assert "the folder holds another domain, or other classes" in said(
        lambda: convert_folder(tree, tmp_path / "zoo")
    )


def test_an_interrupted_conversion_goes_on(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    convert_folder(tree, tmp_path / "zoo")
    calls: list[str] = []
    real = converting.stored_bytes

    def stop_after(count: int) -> Callable[[bytes, str], bytes]:
        def stored(encoded: bytes, where: str) -> bytes:
            calls.append(where)
            if len(calls) > count:
                raise KeyboardInterrupt
            return real(encoded, where)

        return stored

    other = tmp_path / "again" / "zoo"
    monkeypatch.setattr(converting, "stored_bytes", stop_after(16))
    with pytest.raises(KeyboardInterrupt):
        convert_folder(tree, other)
    assert not (other / "dataset_spec.json").exists()
    calls.clear()
    monkeypatch.setattr(converting, "stored_bytes", stop_after(10**6))
    convert_folder(tree, other)
    assert 0 < len(calls) < 33
    names = sorted(path.name for path in (tmp_path / "zoo").glob("*.tfrecords"))
    assert len(names) == 6
    assert all((tmp_path / "zoo" / name).read_bytes() == (other / name).read_bytes() for name in names)


def test_a_bad_image_stops_the_conversion_and_is_named(tree: Path, tmp_path: Path) -> None:
    bad = tree / "cow" / "1.jpg"
    bad.write_bytes(bad.read_bytes()[:300])
    sentence = said(lambda: convert_folder(tree, tmp_path / "zoo"))
    assert f"{bad}: the picture is damaged or cut short" in sentence
    assert not (tmp_path / "zoo" / "dataset_spec.json").exists()
    assert not list((tmp_path / "zoo").glob(".*.part"))


def test_a_target_inside_the_source_is_refused(tree: Path) -> None:
    assert "the target lies inside the images" in said(lambda: convert_folder(tree, tree / "records"))
    assert "the target lies inside the images" in said(lambda: convert_folder(tree, tree))


def test_bad_trees_are_refused_before_anything_is_written(tree: Path, tmp_path: Path) -> None:
    (tree / "gnu").mkdir()
    assert "the class 'gnu' has no image" in said(lambda: convert_folder(tree, tmp_path / "zoo"))
    assert "this is not there" in said(lambda: convert(tmp_path / "nothing", tmp_path / "zoo"))
    assert not (tmp_path / "zoo").exists()


DIGITS = np.random.default_rng(0).integers(0, 256, (60, 28, 28), dtype=np.uint8)
LABELS = np.arange(60, dtype=np.uint8) % 10


def write_mnist(folder: Path, packed: bool) -> None:
    folder.mkdir(parents=True)
    images = struct.pack(">BBBBIII", 0, 0, 8, 3, 60, 28, 28) + DIGITS.tobytes()
    labels = struct.pack(">BBBBI", 0, 0, 8, 1, 60) + LABELS.tobytes()
    for name, data in (("t10k-images-idx3-ubyte", images), ("t10k-labels-idx1-ubyte", labels)):
        if packed:
            (folder / f"{name}.gz").write_bytes(gzip.compress(data))
        else:
            (folder / name).write_bytes(data)


@pytest.mark.parametrize("packed", [True, False])
def test_mnist_as_published(tmp_path: Path, packed: bool) -> None:
    write_mnist(tmp_path / "raw" / "MNIST", packed)
    spec = convert(tmp_path / "raw", tmp_path / "mnist")
    assert spec.class_names == tuple(f"class_{digit}" for digit in range(10))
    assert spec.splits["test"] == range(10)
    stored = records_of(tmp_path / "mnist", 3)
    assert stored[1] == enlarged(DIGITS[13])
    image = open_domain(tmp_path / "mnist").source.read([(3, 1)])[0]
    assert image.shape == (84, 84, 3)
    want = np.asarray(Image.fromarray(DIGITS[13]).resize((84, 84), Image.Resampling.LANCZOS))
    assert np.abs(image[..., 0].astype(int) - want).mean() < 12  # noise is the hardest thing for a JPEG
    assert np.array_equal(image[..., 0], image[..., 1])


def write_cifar(folder: Path, fine: bool) -> tuple[Any, list[str]]:
    folder.mkdir(parents=True)
    images = np.random.default_rng(1).integers(0, 256, (30, 3, 32, 32), dtype=np.uint8)
    labels = np.arange(30, dtype=np.uint8) % 3
    names = ["truck", "apple", "frog"]
    heads = [bytes([9, label]) if fine else bytes([label]) for label in labels]
    data = b"".join(head + image.tobytes() for head, image in zip(heads, images, strict=True))
    (folder / ("test.bin" if fine else "test_batch.bin")).write_bytes(data)
    (folder / ("fine_label_names.txt" if fine else "batches.meta.txt")).write_text("\n".join(names) + "\n\n")
    return images, names


@pytest.mark.parametrize("fine", [False, True])
def test_cifar_as_published(tmp_path: Path, fine: bool) -> None:
    images, _ = write_cifar(tmp_path / "raw", fine)
    spec = convert(tmp_path / "raw", tmp_path / "cifar")
    assert spec.class_names == ("apple", "frog", "truck")
    assert spec.images_per_class == (10, 10, 10)
    stored = records_of(tmp_path / "cifar", 2)
    assert stored[1] == enlarged(np.ascontiguousarray(images[3].transpose(1, 2, 0)))


def test_pickles_are_refused(tmp_path: Path) -> None:
    for name, archive in (("test_batch", "cifar-10-binary.tar.gz"), ("test", "cifar-100-binary.tar.gz")):
        folder = tmp_path / name
        folder.mkdir()
        with open(folder / name, "wb") as file:
            pickle.dump({"data": [1]}, file)
        sentence = said(lambda folder=folder: convert(folder, tmp_path / "out"))  # type: ignore[misc]
        assert "a pickle, which could run any code when loaded" in sentence
        assert f"take {archive} from the same page" in sentence
    assert not (tmp_path / "out").exists()


def test_damaged_published_files(tmp_path: Path) -> None:
    raw, out = tmp_path / "raw", tmp_path / "out"
    write_mnist(raw, packed=False)
    images, labels = raw / "t10k-images-idx3-ubyte", raw / "t10k-labels-idx1-ubyte"
    good = images.read_bytes()
    images.write_bytes(good[:-5])
    assert f"{images}: 47,035 values instead of 47,040: it is cut short" in said(lambda: convert(raw, out))
    images.write_bytes(good[:6])
    assert "this is no IDX file of 3 dimensions" in said(lambda: convert(raw, out))
    images.write_bytes(struct.pack(">BBBBIII", 0, 0, 8, 3, 2**32 - 1, 2**32 - 1, 2**32 - 1) + good[16:])
    assert "instead of" in said(lambda: convert(raw, out))
    images.write_bytes(good)
    labels.write_bytes(struct.pack(">BBBBI", 0, 0, 8, 1, 50) + LABELS.tobytes()[:50])
    assert f"{labels}: 50 labels for 60 images" in said(lambda: convert(raw, out))
    labels.unlink()
    assert "the file t10k-labels-idx1-ubyte.gz is missing" in said(lambda: convert(raw, out))
    (raw / "t10k-labels-idx1-ubyte.gz").write_bytes(b"\x1f\x8bnot gzip at all")
    assert "it cannot be read" in said(lambda: convert(raw, out))
    write_cifar(tmp_path / "cifar", fine=False)
    batch = tmp_path / "cifar" / "test_batch.bin"
    data = batch.read_bytes()
    batch.write_bytes(data[:-1])
    assert "are no whole number of images" in said(lambda: convert(tmp_path / "cifar", out))
    batch.write_bytes(b"\x07" + data[1:])
    assert "it has the label 7, and batches.meta.txt has 3 names" in said(
        lambda: convert(tmp_path / "cifar", out)
    )
    assert not out.exists()


def test_a_target_that_cannot_be_written(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    assert "cannot be written" in said(lambda: convert_folder(tree, tmp_path / "file" / "zoo"))
