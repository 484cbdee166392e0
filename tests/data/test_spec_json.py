"""Specs: the official totals, the three kinds, and a sentence for everything that can be wrong."""

import copy
from pathlib import Path

import pytest
from spec_examples import BILEVEL, FLAT, GRAPH, node, parse

from fewshift.data.official import ORDER, SEEN, UNSEEN, WITH_SPEC, official_spec
from fewshift.data.spec import Group, flat_spec
from fewshift.data.spec_json import parse_spec, read_spec, spec_text, write_spec
from fewshift.errors import DataError
from fewshift.types import SPLITS

# Classes and images of TRAIN, VALID, TEST, as the protocol's table has them.
OFFICIAL = {
    "ilsvrc_2012": ((712, 158, 130), (915_249, 199_833, 165_682)),
    "omniglot": ((883, 81, 659), (17_660, 1_620, 13_180)),
    "aircraft": ((70, 15, 15), (7_000, 1_500, 1_500)),
    "cu_birds": ((140, 30, 30), (8_239, 1_779, 1_770)),
    "dtd": ((33, 7, 7), (3_960, 840, 840)),
    "quickdraw": ((241, 52, 52), (34_776_331, 7_939_640, 7_710_295)),
    "fungi": ((994, 200, 200), (64_449, 12_195, 13_116)),
    "vgg_flower": ((71, 15, 16), (5_655, 1_109, 1_425)),
    "traffic_sign": ((0, 0, 43), (0, 0, 39_209)),
    "mscoco": ((0, 40, 40), (0, 513_021, 346_980)),
}


@pytest.mark.parametrize("name", OFFICIAL)
def test_official_totals(name: str) -> None:
    spec = official_spec(name)
    assert spec is not None
    classes = tuple(len(spec.splits[split]) for split in SPLITS)
    assert (classes, tuple(spec.images(split) for split in SPLITS)) == OFFICIAL[name]


def test_official_order_and_kinds() -> None:
    assert (len(SEEN), len(UNSEEN), len(ORDER)) == (8, 5, 13)
    assert set(WITH_SPEC) == set(OFFICIAL)
    kinds = {name: spec.kind for name in WITH_SPEC if (spec := official_spec(name))}
    assert {name for name, kind in kinds.items() if kind != "flat"} == {"omniglot", "ilsvrc_2012"}
    assert official_spec("mnist") is official_spec("../fungi") is None


def test_official_omniglot_alphabets() -> None:
    spec = official_spec("omniglot")
    assert spec is not None
    assert [len(spec.groups[split]) for split in SPLITS] == [25, 5, 20]
    assert sorted(len(group.class_ids) for group in spec.groups["valid"]) == [14, 14, 16, 17, 20]
    assert spec.groups["train"][0].name == "Anglo-Saxon_Futhorc"
    for split in SPLITS:
        assert [c for group in spec.groups[split] for c in group.class_ids] == list(spec.splits[split])


def test_official_imagenet_graph() -> None:
    spec = official_spec("ilsvrc_2012")
    assert spec is not None
    assert [len(spec.groups[split]) for split in SPLITS] == [299, 42, 50]
    kept = {s: [g for g in spec.groups[s] if 5 <= len(g.class_ids) <= 392] for s in SPLITS}
    assert [len(kept[split]) for split in SPLITS] == [113, 18, 15]
    for split in SPLITS:
        assert {c for group in kept[split] for c in group.class_ids} == set(spec.splits[split])
        names = [group.name for group in spec.groups[split]]
        assert names == sorted(names)
        for group in spec.groups[split]:
            leaves = [spec.class_names[c] for c in group.class_ids]
            assert leaves == sorted(set(leaves))


@pytest.mark.data
def test_shipped_specs_equal_the_published_files(official_specs: Path) -> None:
    for name in WITH_SPEC:
        assert read_spec(official_specs / f"{name}_dataset_spec.json") == official_spec(name)


@pytest.mark.data
def test_md_mini_specs(md_mini: Path) -> None:
    specs = [read_spec(folder) for folder in md_mini.iterdir() if folder.is_dir()]
    assert len(specs) == 16
    assert sum(sum(spec.images_per_class) for spec in specs) == 64_076


def test_flat() -> None:
    spec = parse(FLAT)
    assert spec == flat_spec("pets", ("cat", "dog", "cow"), (3, 4, 5), {"train": 2, "test": 1})


def test_bilevel() -> None:
    spec = parse(BILEVEL)
    assert (spec.kind, dict(spec.splits)) == (
        "bilevel",
        {"train": range(2), "valid": range(2, 3), "test": range(3, 3)},
    )
    assert spec.groups == {"train": (Group("greek", (0, 1)),), "valid": (Group("latin", (2,)),), "test": ()}


def test_hierarchical() -> None:
    spec = parse(GRAPH)
    assert spec.images_per_class == (3, 4, 5, 9)
    assert spec.groups["train"] == (Group("mid", (0, 1)), Group("root", (0, 1, 2)))
    assert spec.groups["test"] == ()


def test_a_leaf_under_two_nodes_is_spanned_once() -> None:
    content = copy.deepcopy(GRAPH)
    content["split_subgraphs"]["TRAIN"] = [
        node("root", ["a", "b"], []),
        node("a", ["x", "y"], ["root"]),
        node("b", ["y", "z"], ["root"]),
        node("x", [], ["a"]),
        node("y", [], ["a", "b"]),
        node("z", [], ["b"]),
    ]
    assert [group.class_ids for group in parse(content).groups["train"]] == [(0, 1), (1, 2), (0, 1, 2)]


def test_written_specs_are_read_back_equal(tmp_path: Path) -> None:
    spec = parse(FLAT)
    write_spec(tmp_path, spec)
    assert read_spec(tmp_path) == spec
    assert [path.name for path in tmp_path.iterdir()] == ["dataset_spec.json"]


def test_official_specs_are_written_and_read_back_equal() -> None:
    spec = official_spec("fungi")
    assert spec is not None
    assert parse_spec(spec_text(spec, ""), "") == spec


def test_specs_that_cannot_be_written() -> None:
    with pytest.raises(DataError, match="both named 'cat'"):
        spec_text(flat_spec("pets", ("cat", "cat"), (2, 2), {"train": 2}), "x")
    with pytest.raises(DataError, match="images_per_class of 1 is 0"):
        spec_text(flat_spec("pets", ("cat", "dog"), (2, 0), {"train": 2}), "x")
    with pytest.raises(ValueError, match="only flat specs can be written"):
        spec_text(parse(BILEVEL), "x")
