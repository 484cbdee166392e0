"""MNIST, CIFAR-10 and CIFAR-100 from the files their authors publish, in the protocol's form.

The test images alone, all classes in the test split; each image enlarged to 84 pixels with Lanczos and stored
as a JPEG; class ids by the sorted names of the classes (`class_0` for the digit 0).
"""

from __future__ import annotations

import gzip
import io
import math
import struct
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fewshift.data.class_split import ALL_TEST, split_spec
from fewshift.data.domain import Provenance
from fewshift.data.records_write import write_domain
from fewshift.data.spec import Spec
from fewshift.errors import DataError
from fewshift.progress import Track

SIDE = 84
Published: TypeAlias = Literal["mnist", "cifar10", "cifar100"]
NamedImages: TypeAlias = tuple[NDArray[np.uint8], list[str]]  # (n, h, w) or (n, h, w, 3), and class names

_KRIZHEVSKY = "A. Krizhevsky, Learning multiple layers of features from tiny images, 2009"
_MADE_BY: Mapping[Published, tuple[str, str]] = {
    "mnist": (
        "MNIST, the 10,000 test digits",
        "Y. LeCun, C. Cortes and C. J. C. Burges, The MNIST database of handwritten digits",
    ),
    "cifar10": ("CIFAR-10, the 10,000 test images", _KRIZHEVSKY),
    "cifar100": ("CIFAR-100, the 10,000 test images", _KRIZHEVSKY),
}
_CIFAR: Mapping[Published, tuple[str, str, int]] = {  # images, names, bytes of an image's labels
    "cifar10": ("test_batch.bin", "batches.meta.txt", 1),
    "cifar100": ("test.bin", "fine_label_names.txt", 2),
}
MNIST_IMAGES = ("t10k-images-idx3-ubyte.gz", "t10k-images-idx3-ubyte", "t10k-images.idx3-ubyte")
MNIST_LABELS = ("t10k-labels-idx1-ubyte.gz", "t10k-labels-idx1-ubyte", "t10k-labels.idx1-ubyte")


def recognise(source: Path) -> Published | None:
    """Which published files this folder holds, if any; the pickled versions are refused here."""
    if not source.is_dir():
        return None
    if _find(source, *MNIST_IMAGES):
        return "mnist"
    if _find(source, "test_batch.bin"):
        return "cifar10"
    if _find(source, "test.bin"):
        return "cifar100"
    for pickled, archive in (("test_batch", "cifar-10-binary.tar.gz"), ("test", "cifar-100-binary.tar.gz")):
        path = _find(source, pickled)
        if path is not None and path.read_bytes()[:1] == b"\x80":
            raise DataError(
                f"{path}: this is CIFAR's Python version, a pickle, which could run any code when loaded: "
                f"take {archive} from the same page and unpack it"
            )
    return None


def convert_published(which: Published, source: Path, target: Path, track: Track) -> Spec:
    """Write the test images as the domain that has the target folder's name."""
    found, names = _mnist(source) if which == "mnist" else _cifar(source, *_CIFAR[which])
    members: dict[str, list[int]] = {name: [] for name in sorted(set(names))}
    for place, name in enumerate(names):
        members[name].append(place)
    counts = {name: len(places) for name, places in members.items()}
    spec = split_spec(target.resolve().name, counts, ALL_TEST, str(source))

    def images(class_id: int) -> Iterator[bytes]:
        return (enlarged(found[place]) for place in members[spec.class_names[class_id]])

    origin, attribution = _MADE_BY[which]
    write_domain(target, spec, images, Provenance(origin, "not stated by its authors", attribution), track)
    return spec


def enlarged(image: NDArray[np.uint8]) -> bytes:
    """The image at 84 pixels by Lanczos, as a JPEG in RGB."""
    large = Image.fromarray(image).resize((SIDE, SIDE), Image.Resampling.LANCZOS)
    return as_jpeg(large.convert("RGB"))


def as_jpeg(picture: Image.Image) -> bytes:
    """A JPEG of quality 75 with halved colour, Pillow's default and so Meta-Dataset's."""
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG")
    return buffer.getvalue()


def _mnist(source: Path) -> NamedImages:
    """The ten thousand test digits."""
    images = _idx(_need(source, *MNIST_IMAGES), 3)
    labels_file = _need(source, *MNIST_LABELS)
    labels = _idx(labels_file, 1)
    if len(images) != len(labels):
        raise DataError(f"{labels_file}: {len(labels)} labels for {len(images)} images: take both files anew")
    if labels.max() > 9:
        raise DataError(f"{labels_file}: it has the label {labels.max()}, which is no digit: take it anew")
    return images, [f"class_{label}" for label in labels.tolist()]


def _idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """An IDX file of bytes: two zeros, type 8, the number of dimensions, their lengths, the values."""
    data = _content(path)
    head = 4 + 4 * dimensions
    if data[:4] != bytes([0, 0, 8, dimensions]) or len(data) < head:
        raise DataError(
            f"{path}: this is no IDX file of {dimensions} dimensions: take the published file anew"
        )
    shape = struct.unpack_from(f">{dimensions}I", data, 4)
    count, wanted = len(data) - head, math.prod(shape)
    if count != wanted or count == 0:
        raise DataError(f"{path}: {count:,} values instead of {wanted:,}: it is cut short, take it anew")
    return np.frombuffer(data, np.uint8, offset=head).reshape(shape)


def _cifar(source: Path, images_name: str, names_name: str, label_bytes: int) -> NamedImages:
    """The ten thousand test images of a CIFAR's binary version; the last byte of a label is the fine one."""
    path, names_file = _need(source, images_name), _need(source, names_name)
    data = np.frombuffer(_content(path), np.uint8)
    length = label_bytes + 3 * 32 * 32
    if len(data) == 0 or len(data) % length:
        raise DataError(
            f"{path}: {len(data):,} bytes are no whole number of images: it is cut short, take it anew"
        )
    rows = data.reshape(-1, length)
    names = [
        line.strip() for line in _content(names_file).decode("utf-8", "replace").splitlines() if line.strip()
    ]
    labels = rows[:, label_bytes - 1]
    if labels.max() >= len(names):
        raise DataError(
            f"{path}: it has the label {labels.max()}, and {names_file.name} has {len(names)} names"
        )
    images = rows[:, label_bytes:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), [names[label] for label in labels.tolist()]


def _content(path: Path) -> bytes:
    limit = 200 * 2**20  # several times the largest of these files; what unpacks to more is something else
    try:
        with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
            data = file.read(limit + 1)
    except (OSError, EOFError, zlib.error) as problem:
        raise DataError(f"{path}: it cannot be read ({problem}): take the published file anew") from problem
    if len(data) > limit:
        raise DataError(f"{path}: it is larger than the published file: take that one")
    return data


def _find(source: Path, *names: str) -> Path | None:
    """The first of these files in the folder or in a folder inside it, as archives unpack."""
    for name in names:
        for path in (source / name, *sorted(source.glob(f"*/{name}"))):
            if path.is_file():
                return path
    return None


def _need(source: Path, *names: str) -> Path:
    found = _find(source, *names)
    if found is None:
        raise DataError(f"{source}: the file {names[0]} is missing: put it beside the other published files")
    return found
