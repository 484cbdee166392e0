"""Specs that are wrong: each is answered by a sentence that names the place."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from spec_examples import BILEVEL, FLAT, GRAPH, node, parse

from fewshift.data.spec_json import parse_spec, read_spec
from fewshift.errors import DataError

Change = Callable[[dict[str, Any]], Any]


def put(*path: str | int) -> Callable[[Any], Change]:
    """put("a", "b")(3) sets content["a"]["b"] = 3."""

    def to(value: Any) -> Change:
        def change(content: Any) -> None:
            for key in path[:-1]:
                content = content[key]
            content[path[-1]] = value

        return change

    return to


def drop(*path: str) -> Change:
    def change(content: Any) -> None:
        for key in path[:-1]:
            content = content[key]
        del content[path[-1]]

    return change


WRONG: list[tuple[dict[str, Any], Change, str]] = [
    (FLAT, put("file_pattern")("{}_{}.tfrecords"), "means pools or shards, which are not read: convert"),
    (FLAT, put("file_pattern")("{}.h5"), "file_pattern is '{}.h5': it must be"),
    (FLAT, put("file_pattern")(None), "file_pattern is None"),
    (
        FLAT,
        put("images_per_class", "1")({"train": 2, "test": 2}),
        "of 1 is divided into pools, which are not read",
    ),
    (FLAT, put("images_per_class", "1")(0), "images_per_class of 1 is 0: a class without images"),
    (FLAT, put("images_per_class", "1")(-4), "images_per_class of 1 is -4: it must be a whole number from 1"),
    (FLAT, put("images_per_class", "1")(10**9), "images_per_class of 1 is 1000000000"),
    (FLAT, put("images_per_class", "1")(10**300), "a number of over 40 digits"),
    (FLAT, put("images_per_class", "1")(3.0), "images_per_class of 1 is 3.0"),
    (FLAT, put("images_per_class", "1")(True), "images_per_class of 1 is True"),
    (FLAT, put("images_per_class", "1")("3"), "images_per_class of 1 is '3'"),
    (FLAT, put("images_per_class", "1")(None), "images_per_class of 1 is None"),
    (FLAT, put("images_per_class", "1")(float("nan")), "images_per_class of 1 is nan"),
    (FLAT, put("images_per_class")([3, 4, 5]), "images_per_class is a JSON array of 3 entries"),
    (
        FLAT,
        drop("images_per_class", "2"),
        "images_per_class has 2 entries but classes_per_split adds up to 3",
    ),
    (FLAT, drop("class_names", "0"), "class_names has 2 entries but classes_per_split adds up to 3"),
    (FLAT, drop("class_names"), "the key 'class_names' is missing"),
    (FLAT, put("class_names", "7")("pig"), "class_names has 4 entries"),
    (FLAT, put("class_names", "1")("cat"), "classes 0 and 1 are both named 'cat': rename one"),
    (FLAT, put("class_names", "1")(""), "class_names of 1 is ''"),
    (FLAT, put("class_names", "1")("a\nb"), "must not have control characters"),
    (FLAT, put("class_names", "1")("\ud800"), "must not have control characters or broken Unicode"),
    (FLAT, put("class_names", "1")(12), "class_names of 1 is 12"),
    (FLAT, put("class_names", "1")("x" * 2000), "it must be a text of 1 to 1000 characters"),
    (
        FLAT,
        put("class_names")({"0": "a", "1": "b", "3": "c"}),
        "class_names has the key '3': ids must be 0 to 2",
    ),
    (FLAT, put("class_names")({"0": "a", "1": "b", "02": "c"}), "class_names has the key '02'"),
    (FLAT, put("class_names")({"0": "a", "1": "b", "٢": "c"}), "class_names has the key"),
    (FLAT, put("class_names")({"0": "a", "1": "b", "-1": "c"}), "class_names has the key '-1'"),
    (FLAT, put("class_names")({"0": "a", "1": "b", "9" * 5000: "c"}), "class_names has the key '9999"),
    (FLAT, put("classes_per_split", "TRAIN")(10**7), "but classes_per_split adds up to 10000001"),
    (FLAT, put("classes_per_split", "TRAIN")(10**12), "classes_per_split of TRAIN is 1000000000000"),
    (FLAT, put("classes_per_split", "TRAIN")(-2), "classes_per_split of TRAIN is -2"),
    (FLAT, drop("classes_per_split", "VALID"), "classes_per_split lacks VALID"),
    (FLAT, put("classes_per_split", "EXTRA")(1), "classes_per_split has the key 'EXTRA'"),
    (FLAT, put("__class__")("BenchmarkSpecification"), "__class__ is 'BenchmarkSpecification': it must be"),
    (FLAT, drop("__class__"), "__class__ is None"),
    (FLAT, put("name")("../pets"), "name is '../pets': it must not start with a dot"),
    (FLAT, put("name")("a/b"), "name is 'a/b'"),
    (FLAT, put("name")(None), "name is None"),
    (FLAT, drop("name"), "name is None"),
    (BILEVEL, put("classes_per_superclass", "0")(0), "classes_per_superclass of 0 is 0"),
    (BILEVEL, put("classes_per_superclass", "0")(10**8), "but classes_per_superclass adds up to 100000001"),
    (
        BILEVEL,
        drop("classes_per_superclass", "1"),
        "classes_per_superclass has 1 entries but superclasses_per_split",
    ),
    (BILEVEL, drop("superclass_names"), "the key 'superclass_names' is missing"),
    (
        BILEVEL,
        put("superclasses_per_split", "TEST")(1),
        "has 2 entries but superclasses_per_split adds up to 3",
    ),
    (BILEVEL, put("images_per_class", "2")(-1), "images_per_class of 2 is -1"),
    (GRAPH, put("split_subgraphs", "TEST")([node("x", [], [])]), "the node 'x' occurs in two splits"),
    (GRAPH, put("split_subgraphs", "TRAIN", 2)(node("y", [], ["mid"])), "the node 'y' occurs twice"),
    (GRAPH, put("split_subgraphs", "TRAIN", 2, "wn_id")(7), "wn_id of node 2 is 7"),
    (GRAPH, put("split_subgraphs", "TRAIN", 2)("z"), "node 2 is 'z': it must be a JSON object"),
    (GRAPH, put("split_subgraphs", "TRAIN")({}), "it must be a JSON array of nodes"),
    (GRAPH, put("split_subgraphs", "TRAIN", 0, "children_ids")(["mid"]), "'z' names the parent 'root'"),
    (GRAPH, put("split_subgraphs", "TRAIN", 0, "children_ids")(["mid", "z", "q"]), "names the child 'q'"),
    (GRAPH, put("split_subgraphs", "TRAIN", 0, "children_ids")(["mid", "z", "z"]), "names a node twice"),
    (GRAPH, put("split_subgraphs", "TRAIN", 0, "children_ids")(None), "children_ids of 'root' is None"),
    (GRAPH, put("images_per_class", "TRAIN", "x")(0), "'x' is 0: it must be a whole number from 1"),
    (GRAPH, drop("images_per_class", "TRAIN", "x"), "images_per_class of TRAIN, 'x' is missing"),
    (GRAPH, put("images_per_class", "TRAIN")([]), "images_per_class of TRAIN is a JSON array"),
    (GRAPH, put("class_names", "0")("lone"), "class_names has 'lone' among the TRAIN classes"),
    (GRAPH, put("class_names", "0")("y"), "class_names lacks 'x', a leaf of the TRAIN graph"),
    (GRAPH, drop("class_names", "3"), "class_names has 3 entries but the leaves of split_subgraphs are 4"),
]


@pytest.mark.parametrize(("base", "change", "sentence"), WRONG, ids=[case[2][:60] for case in WRONG])
def test_wrong_specs_are_answered_by_a_sentence(base: dict[str, Any], change: Change, sentence: str) -> None:
    content = copy.deepcopy(base)
    change(content)
    with pytest.raises(DataError) as problem:
        parse(content)
    assert str(problem.value).startswith("spec.json: ")
    assert sentence in str(problem.value)
    assert len(str(problem.value)) < 400
    assert "\n" not in str(problem.value)


def test_a_graph_with_a_cycle() -> None:
    content = copy.deepcopy(GRAPH)
    content["split_subgraphs"]["TRAIN"][1] = node("mid", ["x", "y", "root"], ["root"])
    content["split_subgraphs"]["TRAIN"][0] = node("root", ["mid", "z"], ["mid"])
    with pytest.raises(DataError, match="is below itself"):
        parse(content)


def test_a_graph_that_would_fill_the_memory() -> None:
    depth = 4000
    chain = [node(f"n{i}", [f"n{i + 1}", f"l{i}"], [f"n{i - 1}"] if i else []) for i in range(depth)]
    leaves = [node(f"l{i}", [], [f"n{i}"]) for i in range(depth)] + [node(f"n{depth}", [], [f"n{depth - 1}"])]
    names = [leaf["wn_id"] for leaf in leaves]
    content = copy.deepcopy(GRAPH)
    content["split_subgraphs"] = {"TRAIN": chain + leaves, "VALID": [], "TEST": []}
    content["class_names"] = {str(i): name for i, name in enumerate(names)}
    content["images_per_class"] = {"TRAIN": dict.fromkeys(names, 1), "VALID": {}, "TEST": {}}
    with pytest.raises(DataError, match="the graph is too large to be true"):
        parse(content)


def test_no_class_at_all() -> None:
    content = {**FLAT, "classes_per_split": {"TRAIN": 0, "VALID": 0, "TEST": 0}, "class_names": {}}
    with pytest.raises(DataError, match="it describes no class at all"):
        parse({**content, "images_per_class": {}})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "not valid JSON"),
        ("{", "not valid JSON"),
        ("[1, 2]", "it must hold a JSON object"),
        ("[" * 100_000, "not valid JSON"),
        ('{"a":' * 100_000, "not valid JSON"),
        ('{"n": ' + "1" * 10_000 + "}", "spec.json: "),
        (json.dumps(FLAT).replace('"1": "dog"', '"0": "dog"'), "the key '0' occurs twice"),
    ],
)
def test_texts_that_are_no_spec(text: str, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        parse_spec(text, "spec.json")


def test_files_that_are_no_spec(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"dataset_spec\.json: there is no such file"):
        read_spec(tmp_path)
    (tmp_path / "dataset_spec.pkl").write_bytes(b"cos\nsystem\n(S'echo'\ntR.")
    with pytest.raises(
        DataError, match=r"dataset_spec\.pkl: a pickled spec can run code and is not read: convert"
    ):
        read_spec(tmp_path)
    (tmp_path / "dataset_spec.json").write_bytes(b"\xff\xfe{")
    with pytest.raises(DataError, match=r"it cannot be read as text .*: check its permissions, or copy"):
        read_spec(tmp_path)
    with (tmp_path / "dataset_spec.json").open("wb") as out:
        out.truncate(65 * 2**20)
    with pytest.raises(DataError, match="over 64 MiB is not read"):
        read_spec(tmp_path)


def test_the_path_inside_and_a_byte_order_mark_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "dataset_spec.json").write_text(
        json.dumps({**FLAT, "path": 17, "more": []}), encoding="utf-8-sig"
    )
    assert read_spec(tmp_path) == read_spec(tmp_path / "dataset_spec.json") == parse(FLAT)
    assert parse({key: value for key, value in FLAT.items() if key not in ("path", "file_pattern")}) == parse(
        FLAT
    )
