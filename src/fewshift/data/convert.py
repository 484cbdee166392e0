"""Raw images into the records layout: `<class id>.tfrecords` and `dataset_spec.json`.

As Meta-Dataset's own conversion does it: a JPEG in RGB is stored byte for byte, anything else is stored as a
JPEG of quality 75. An interrupted conversion goes on where it stopped; a finished one that is asked for again
converts again the classes whose images have changed since.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from pathlib import Path

from PIL import Image

from fewshift.data.class_split import ClassSplit, DrawnSplit, split_spec
from fewshift.data.convert_published import as_jpeg, convert_published, recognise
from fewshift.data.decoding import decode, is_upright_rgb_jpeg
from fewshift.data.domain import Provenance
from fewshift.data.folder import list_folder, read_bytes
from fewshift.data.records_write import begins_with, write_domain
from fewshift.data.spec import Spec
from fewshift.errors import DataError
from fewshift.progress import Track, silent

DEFAULT_SPLIT = DrawnSplit()


def convert(
    source: Path,
    target: Path,
    split: ClassSplit = DEFAULT_SPLIT,
    provenance: Provenance | None = None,
    track: Track = silent,
) -> Spec:
    """Convert whatever is in `source`: MNIST's or CIFAR's published test files, or one folder per class."""
    published = recognise(source)
    if published is not None:
        return convert_published(published, source, target, track)
    return convert_folder(source, target, split, provenance, track)


def convert_folder(
    source: Path,
    target: Path,
    split: ClassSplit = DEFAULT_SPLIT,
    provenance: Provenance | None = None,
    track: Track = silent,
) -> Spec:
    """Convert a folder-a-class tree; the domain gets the name of the target folder."""
    if source.resolve() == target.resolve() or source.resolve() in target.resolve().parents:
        raise DataError(
            f"{target}: the target lies inside the images it is made from: choose a folder outside"
        )
    files = list_folder(source).classes
    counts = {name: len(paths) for name, paths in files.items()}
    spec = split_spec(target.resolve().name, counts, split, str(source))

    def images(class_id: int) -> Iterator[bytes]:
        return (stored_bytes(read_bytes(path), str(path)) for path in files[spec.class_names[class_id]])

    def changed(class_id: int) -> float:
        if not begins_with(target, class_id, next(images(class_id))):
            return inf  # images of another folder of this name, which may be as old: `val/` after `train/`
        own = files[spec.class_names[class_id]]
        # What is moved here, renamed or unpacked brings an old time of writing, but not of its last change.
        now = [path.stat() for path in {*own, *(path.parent for path in own)}]
        return max(max(status.st_mtime, status.st_ctime) for status in now)

    origin = provenance or Provenance(origin=f"converted from {source.resolve().name}")
    write_domain(target, spec, images, origin, track, changed)
    return spec


def stored_bytes(encoded: bytes, where: str) -> bytes:
    """The picture as records hold it. It is decoded in any case, so that a broken one is found now."""
    pixels = decode(encoded, where)
    return encoded if is_upright_rgb_jpeg(encoded, where) else as_jpeg(Image.fromarray(pixels))
