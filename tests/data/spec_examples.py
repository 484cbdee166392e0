"""A spec of each kind as JSON has it."""

import json
from typing import Any

from fewshift.data.spec import Spec
from fewshift.data.spec_json import parse_spec

FLAT: dict[str, Any] = {
    "name": "pets",
    "path": "/somewhere/else",
    "file_pattern": "{}.tfrecords",
    "__class__": "DatasetSpecification",
    "classes_per_split": {"TRAIN": 2, "VALID": 0, "TEST": 1},
    "class_names": {"0": "cat", "1": "dog", "2": "cow"},
    "images_per_class": {"0": 3, "1": 4, "2": 5},
}


BILEVEL: dict[str, Any] = {
    "name": "letters",
    "path": "",
    "file_pattern": "{}.tfrecords",
    "__class__": "BiLevelDatasetSpecification",
    "superclasses_per_split": {"TRAIN": 1, "VALID": 1, "TEST": 0},
    "classes_per_superclass": {"0": 2, "1": 1},
    "superclass_names": {"0": "greek", "1": "latin"},
    "class_names": {"0": "alpha", "1": "beta", "2": "a"},
    "images_per_class": {"0": 3, "1": 4, "2": 5},
}


def node(name: str, children: list[str], parents: list[str]) -> dict[str, Any]:
    return {"wn_id": name, "words": name, "children_ids": children, "parents_ids": parents}


GRAPH: dict[str, Any] = {
    "name": "tree",
    "path": "",
    "file_pattern": "{}.tfrecords",
    "__class__": "HierarchicalDatasetSpecification",
    "split_subgraphs": {
        "TRAIN": [
            node("root", ["mid", "z"], []),
            node("mid", ["x", "y"], ["root"]),
            node("z", [], ["root"]),
            node("y", [], ["mid"]),
            node("x", [], ["mid"]),
        ],
        "VALID": [],
        "TEST": [node("lone", [], [])],
    },
    "images_per_class": {
        "TRAIN": {"root": 12, "mid": 7, "x": 3, "y": 4, "z": 5},
        "VALID": {},
        "TEST": {"lone": 9},
    },
    "class_names": {"0": "x", "1": "y", "2": "z", "3": "lone"},
}


def parse(content: Any) -> Spec:
    return parse_spec(json.dumps(content), "spec.json")
