"""Write a `Spec` as `dataset_spec.json`, so that this reader and Meta-Dataset's own can open it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fewshift.data.spec import Group, Spec
from fewshift.data.spec_fields import SPLIT_KEYS
from fewshift.data.spec_json import FILE_PATTERN, SPEC_FILE, parse_spec
from fewshift.data.whole_files import write_whole
from fewshift.errors import DataError
from fewshift.types import SPLITS, Split


def write_spec(folder: Path, spec: Spec, file_name: str = SPEC_FILE) -> Path:
    """Write the spec into this records folder, in one piece."""
    text = spec_text(spec, str(folder / file_name))
    write_whole(folder / file_name, text.encode())
    return folder / file_name


def spec_text(spec: Spec, where: str) -> str:
    """The JSON text of the spec; what could not be read back as the same spec is refused."""
    names = {
        "flat": "DatasetSpecification",
        "bilevel": "BiLevelDatasetSpecification",
        "hierarchical": "HierarchicalDatasetSpecification",
    }
    content: dict[str, Any] = {
        "name": spec.name,
        "path": "",
        "file_pattern": FILE_PATTERN,
        "__class__": names[spec.kind],
        **{"flat": _flat, "bilevel": _bilevel, "hierarchical": _hierarchical}[spec.kind](spec),
        "class_names": _by_id(spec.class_names),
    }
    text = json.dumps(content, indent=1, ensure_ascii=False)
    again = parse_spec(text, where)
    if again.fingerprint() != spec.fingerprint() or again.class_names != spec.class_names:
        raise DataError(
            f"{where}: the {spec.kind} spec of {spec.name} cannot be written: its groups must "
            "cover the split's classes in the order of class ids (bi-level) or of class names (hierarchical)"
        )
    return text


def _by_id(values: Sequence[Any]) -> dict[str, Any]:
    return {str(place): value for place, value in enumerate(values)}


def _flat(spec: Spec) -> dict[str, Any]:
    return {
        "classes_per_split": {SPLIT_KEYS[s]: len(spec.splits[s]) for s in SPLITS},
        "images_per_class": _by_id(spec.images_per_class),
    }


def _bilevel(spec: Spec) -> dict[str, Any]:
    groups = [group for split in SPLITS for group in spec.groups.get(split, ())]
    return {
        "superclasses_per_split": {SPLIT_KEYS[s]: len(spec.groups.get(s, ())) for s in SPLITS},
        "classes_per_superclass": _by_id([len(group.class_ids) for group in groups]),
        "superclass_names": _by_id([group.name for group in groups]),
        "images_per_class": _by_id(spec.images_per_class),
    }


def _hierarchical(spec: Spec) -> dict[str, Any]:
    """Each group becomes a node right above its leaves: the spans, all that a task needs, stay the same."""
    return {
        "split_subgraphs": {SPLIT_KEYS[s]: _nodes(spec, s) for s in SPLITS},
        "images_per_class": {
            SPLIT_KEYS[s]: {
                **{spec.class_names[c]: spec.images_per_class[c] for c in spec.splits[s]},
                **{
                    g.name: sum(spec.images_per_class[c] for c in g.class_ids) for g in spec.groups.get(s, ())
                },
            }
            for s in SPLITS
        },
    }


def _nodes(spec: Spec, split: Split) -> list[dict[str, Any]]:
    groups: Sequence[Group] = spec.groups.get(split, ())
    above: dict[int, list[str]] = {c: [] for c in spec.splits[split]}
    for group in groups:
        for c in group.class_ids:
            above.setdefault(c, []).append(group.name)
    nodes: list[tuple[str, list[str], list[str]]] = [
        (group.name, [spec.class_names[c] for c in group.class_ids], []) for group in groups
    ]
    nodes += [(spec.class_names[c], [], parents) for c, parents in above.items()]
    return [
        {"wn_id": name, "words": name, "children_ids": below, "parents_ids": parents}
        for name, below, parents in nodes
    ]
