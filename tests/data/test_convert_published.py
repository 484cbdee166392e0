"""MNIST and CIFAR as published into records; what is refused of them."""

import gzip
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from refusals import said
from small_records import records_of

from fewshift.data.convert import convert
from fewshift.data.convert_published import enlarged
from fewshift.data.records_folder import open_domain

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
