"""Small domains in the records layout, made in a moment."""

import io
import struct
from pathlib import Path

import numpy as np
from PIL import Image

from fewshift.data.example import encode_example
from fewshift.data.records_write import write_domain
from fewshift.data.spec import Spec, flat_spec
from fewshift.data.tfrecord import frame


def png(number: int, size: int = 6) -> bytes:
    """A small picture that no other number gives."""
    pixels = np.random.default_rng(number).integers(0, 256, (size, size, 3), dtype=np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def images_of(spec: Spec, class_id: int) -> list[bytes]:
    return [png(1000 * class_id + place) for place in range(spec.images_per_class[class_id])]


def small_spec(counts: tuple[int, ...] = (4, 3, 5), name: str = "small") -> Spec:
    names = tuple(f"class {i}" for i in range(len(counts)))
    return flat_spec(name, names, counts, {"train": len(counts) - 2, "valid": 1, "test": 1})


def small_domain(root: Path, counts: tuple[int, ...] = (4, 3, 5), name: str = "small") -> tuple[Path, Spec]:
    """(folder, spec) of a whole domain."""
    spec = small_spec(counts, name)
    write_domain(root / name, spec, lambda class_id: images_of(spec, class_id))
    return root / name, spec


def record_file(path: Path, images: list[bytes], label: int) -> Path:
    path.write_bytes(frame([encode_example(image, label) for image in images]))
    return path


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
