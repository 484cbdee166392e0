"""Thousands of damaged and strange specs: refused by a sentence or read right."""

import copy
import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest
from damage import mutate_plainly, outcome
from hypothesis import given, settings
from hypothesis import strategies as st
from spec_examples import BILEVEL, GRAPH

from fewshift.data import official
from fewshift.data.spec import Spec
from fewshift.data.spec_json import parse_spec
from fewshift.data.suite_file import read_suite
from fewshift.errors import DataError
from fewshift.types import SPLITS


def sound(spec: Spec) -> None:
    """What every part of the library relies on."""
    assert len(spec.class_names) == len(spec.images_per_class) == spec.classes > 0
    assert [c for split in SPLITS for c in spec.splits[split]] == list(range(spec.classes))
    assert all(isinstance(n, int) and n >= 1 for n in spec.images_per_class)
    assert len(set(spec.class_names)) == spec.classes
    for split in SPLITS:
        for group in spec.groups.get(split, ()):
            assert group.class_ids
            assert set(group.class_ids) <= set(spec.splits[split])
    spec.fingerprint()


def parse_or_refuse(text: str) -> bool:
    found = outcome(lambda: parse_spec(text, "spec.json"))
    if isinstance(found, DataError):
        assert str(found).startswith("spec.json: ")
        assert len(str(found)) < 600
        str(found).encode()  # can be printed
        return False
    sound(found)
    return True


def spec_texts() -> list[str]:
    folder = Path(official.__file__).parent
    packed = [(folder / f"{name}.json.gz").read_bytes() for name in ("dtd", "traffic_sign", "mscoco")]
    return [*(gzip.decompress(data).decode() for data in packed), json.dumps(BILEVEL), json.dumps(GRAPH)]


@pytest.mark.slow
def test_mutated_spec_texts() -> None:
    dice = random.Random(8)
    texts = [text.encode() for text in spec_texts()]
    accepted = 0
    for _ in range(1500):
        mutated = mutate_plainly(dice, dice.choice(texts))
        accepted += parse_or_refuse(mutated.decode("utf-8", "surrogateescape"))
    assert 0 < accepted < 1200


STRANGE = [
    None,
    True,
    0,
    -1,
    1,
    3,
    2**31,
    10**30,
    1.5,
    float("nan"),
    "",
    "0",
    "TRAIN",
    "\ud800",
    [],
    {},
    [[]],
    {"0": 1},
]


def mutate_tree(dice: random.Random, content: Any) -> None:
    """Replace, remove, move or add something somewhere in the JSON."""
    while isinstance(content, dict | list) and content:
        key = dice.choice(list(content)) if isinstance(content, dict) else dice.randrange(len(content))
        if dice.random() < 0.4 or not isinstance(content[key], dict | list):
            break
        content = content[key]
    if not isinstance(content, dict | list) or not content:
        return
    what = dice.randrange(4)
    if what == 0:
        content[key] = copy.deepcopy(dice.choice(STRANGE))
    elif what == 1:
        del content[key]
    elif what == 2 and isinstance(content, dict):
        content[dice.choice(["0", "7", "-1", "01", "TRAIN", "x", "9" * 30])] = copy.deepcopy(content[key])
    else:
        other = dice.choice(list(content)) if isinstance(content, dict) else dice.randrange(len(content))
        content[key], content[other] = content[other], content[key]


def test_mutated_spec_trees() -> None:
    dice = random.Random(9)
    trees = [json.loads(text) for text in spec_texts()]
    accepted = 0
    for _ in range(2000):
        content = copy.deepcopy(dice.choice(trees))
        for _ in range(dice.choice([1, 1, 2, 4])):
            mutate_tree(dice, content)
        accepted += parse_or_refuse(json.dumps(content))
    assert 0 < accepted < 1500


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


KEYS = [
    "name",
    "__class__",
    "file_pattern",
    "classes_per_split",
    "class_names",
    "images_per_class",
    "superclasses_per_split",
    "classes_per_superclass",
    "superclass_names",
    "split_subgraphs",
]


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(st.sampled_from(KEYS), json_values),
    st.sampled_from(
        ["DatasetSpecification", "BiLevelDatasetSpecification", "HierarchicalDatasetSpecification"]
    ),
)
def test_any_json_is_no_spec(content: dict[str, Any], kind: str) -> None:
    parse_or_refuse(json.dumps({"name": "x", "__class__": kind, **content}))


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60) | json_values.map(json.dumps))
def test_any_text_is_no_spec(text: str) -> None:
    assert not parse_or_refuse(text)


@settings(max_examples=150, deadline=None)
@given(content=json_values)
def test_any_json_as_suite_file(tmp_path_factory: pytest.TempPathFactory, content: Any) -> None:
    root = tmp_path_factory.mktemp("suite")
    (root / "suite.json").write_text(json.dumps(content))
    found = outcome(lambda: read_suite(root))
    assert "suite.json: " in str(found) if isinstance(found, DataError) else found == {}
