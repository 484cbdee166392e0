"""Read `dataset_spec.json`: flat, bi-level (Omniglot) and hierarchical (ImageNet) domains; write flat ones.

The `path` inside the file is where the conversion once ran and is ignored. Everything else must agree with
itself, because a spec that is wrong by one class gives wrong labels and no error.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from fewshift.data.spec import Group, Spec, split_ranges
from fewshift.data.spec_fields import SPLIT_KEYS, Fields, load_fields, read_fields, show
from fewshift.data.spec_graph import hierarchical_spec
from fewshift.data.whole_files import write_whole
from fewshift.errors import DataError
from fewshift.types import SPLITS

SPEC_FILE = "dataset_spec.json"
LEGACY_FILE = "dataset_spec.pkl"
FILE_PATTERN = "{}.tfrecords"
MAX_SPEC_BYTES = 64 * 2**20  # the largest official file has 340 KB


def read_spec(path: Path, *, unique_names: bool = True) -> Spec:
    """The spec of a records folder, or of one `dataset_spec.json` by its own path."""
    file = path / SPEC_FILE if path.is_dir() else path
    if not file.is_file():
        if (file.parent / LEGACY_FILE).is_file():
            raise DataError(
                f"{file.parent / LEGACY_FILE}: a pickled spec can run code and is not read: "
                f"convert the dataset again, or put the official {SPEC_FILE} beside the records"
            )
        raise DataError(
            f"{file}: there is no such file: a records folder holds a {SPEC_FILE} beside its records"
        )
    if file.stat().st_size > MAX_SPEC_BYTES:
        raise DataError(f"{file}: a spec of over {MAX_SPEC_BYTES // 2**20} MiB is not read: write it anew")
    return _spec(read_fields(file, "check its permissions, or copy the file again"), unique_names)


def parse_spec(text: str, where: str) -> Spec:
    """The spec in this JSON text; `where` names it in errors."""
    return _spec(load_fields(text, where), unique_names=True)


def _spec(fields: Fields, unique_names: bool) -> Spec:
    _check_file_pattern(fields)
    name = fields.domain_name(fields.values.get("name"), "name")
    kind = fields.values.get("__class__")
    if kind == "DatasetSpecification":
        spec = _flat(fields, name)
    elif kind == "BiLevelDatasetSpecification":
        spec = _bilevel(fields, name)
    elif kind == "HierarchicalDatasetSpecification":
        spec = hierarchical_spec(fields, name)
    else:
        fields.refuse(
            f"__class__ is {show(kind)}: it must be DatasetSpecification, BiLevelDatasetSpecification "
            "or HierarchicalDatasetSpecification"
        )
    if spec.classes == 0:
        fields.refuse("it describes no class at all: write it anew")
    if unique_names and (twice := repeated_names(spec.class_names)):
        first, second = twice[0]
        fields.refuse(
            f"classes {first} and {second} are both named {show(spec.class_names[first])}: rename one of them"
        )
    return spec


def spec_text(spec: Spec, where: str) -> str:
    """The JSON text of a flat spec; one that could not be read back is refused."""
    content = {
        "name": spec.name,
        "path": "",
        "file_pattern": FILE_PATTERN,
        "__class__": "DatasetSpecification",
        "classes_per_split": {SPLIT_KEYS[s]: len(spec.splits[s]) for s in SPLITS},
        "images_per_class": dict(enumerate(spec.images_per_class)),
        "class_names": dict(enumerate(spec.class_names)),
    }
    text = json.dumps(content, indent=1, ensure_ascii=False)
    if parse_spec(text, where) != spec:
        raise ValueError(f"{where}: only flat specs can be written")
    return text


def write_spec(folder: Path, spec: Spec, file_name: str = SPEC_FILE) -> None:
    """Write the spec into this records folder, in one piece."""
    write_whole(folder / file_name, spec_text(spec, str(folder / file_name)).encode())


def repeated_names(names: Sequence[str]) -> list[tuple[int, int]]:
    """Pairs of class ids with one name: (first class of that name, a later one)."""
    first: dict[str, int] = {}
    return [(first[name], i) for i, name in enumerate(names) if first.setdefault(name, i) != i]


def _check_file_pattern(fields: Fields) -> None:
    pattern = fields.values.get("file_pattern", FILE_PATTERN)
    if pattern == "{}_{}.tfrecords":
        fields.refuse(
            f"file_pattern {pattern!r} means pools or shards, which are not read: convert the dataset again "
            f"with one {FILE_PATTERN!r} file a class"
        )
    if pattern != FILE_PATTERN:
        fields.refuse(f"file_pattern is {show(pattern)}: it must be {FILE_PATTERN!r}")


def _image_count(fields: Fields, value: Any, what: str) -> int:
    if isinstance(value, dict):
        fields.refuse(
            f"{what} is divided into pools, which are not read: "
            "convert the dataset again with one count a class"
        )
    if value == 0 and isinstance(value, int):
        fields.refuse(f"{what} is 0: a class without images must be left out, so write the dataset anew")
    return fields.whole(value, what, 1)


def _flat(fields: Fields, name: str) -> Spec:
    counts = fields.by_split("classes_per_split", lambda v, what: fields.whole(v, what, 0))
    classes = sum(counts.values())
    why = "classes_per_split adds up to"
    return Spec(
        name=name,
        class_names=fields.by_id("class_names", fields.text, classes, why),
        images_per_class=fields.by_id(
            "images_per_class", lambda v, what: _image_count(fields, v, what), classes, why
        ),
        splits=split_ranges(counts),
    )


def _bilevel(fields: Fields, name: str) -> Spec:
    counts = fields.by_split("superclasses_per_split", lambda v, what: fields.whole(v, what, 0))
    total = sum(counts.values())
    why = "superclasses_per_split adds up to"
    names = fields.by_id("superclass_names", fields.text, total, why)
    sizes = fields.by_id("classes_per_superclass", lambda v, what: fields.whole(v, what, 1), total, why)
    why = "classes_per_superclass adds up to"
    class_names = fields.by_id("class_names", fields.text, sum(sizes), why)
    images = fields.by_id("images_per_class", lambda v, what: _image_count(fields, v, what), sum(sizes), why)
    groups = [
        Group(group, tuple(range(stop - size, stop)))
        for group, size, stop in zip(names, sizes, accumulate(sizes), strict=True)
    ]
    of_split = split_ranges(counts)
    return Spec(
        name=name,
        class_names=class_names,
        images_per_class=images,
        splits=split_ranges({split: sum(sizes[s] for s in of_split[split]) for split in SPLITS}),
        kind="bilevel",
        groups={split: tuple(groups[s] for s in of_split[split]) for split in SPLITS},
    )
