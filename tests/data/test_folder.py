"""A folder a class: what is a class, what is left out, what is refused, and how classes are split."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from refusals import said

from fewshift.data.class_split import DrawnSplit, GivenSplit, read_split, split_classes
from fewshift.data.convert import convert_folder
from fewshift.data.folder import folder_domain, list_folder
from fewshift.estimator.inputs import folder_items
from fewshift.types import SPLITS


def put(folder: Path, count: int = 3, colour: int = 9) -> None:
    folder.mkdir(parents=True)
    for number in range(count):
        Image.new("RGB", (5 + number, 4), (colour, number, 0)).save(folder / f"{number}.png")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for colour, name in enumerate(["wren", "Tit", "crow", "häher"]):
        put(tmp_path / "birds" / name, 3 + colour, colour)
    return tmp_path / "birds"


def test_classes_and_images_by_name(tree: Path) -> None:
    domain = folder_domain(tree)
    assert domain.name == "birds"
    assert domain.spec.class_names == ("Tit", "crow", "häher", "wren")
    assert domain.spec.images_per_class == (4, 5, 6, 3)
    assert domain.spec.splits["test"] == range(4)
    first, second = domain.source.read([(3, 2), (0, 0)])
    assert first.shape == (4, 7, 3)
    assert first[0, 0].tolist() == [0, 2, 0]
    assert second[0, 0].tolist() == [1, 0, 0]


def test_junk_is_ignored_and_the_reason_kept(tree: Path) -> None:
    (tree / "readme.txt").write_text("x")
    (tree / ".DS_Store").write_text("x")
    (tree / "Tit" / "Thumbs.db").write_text("x")
    (tree / "Tit" / ".hidden.png").write_text("x")
    put(tree / "Tit" / "more")
    found = list_folder(tree)
    reasons = {path.name: reason for path, reason in found.ignored.items()}
    assert reasons == {
        ".DS_Store": "its name begins with a dot",
        "readme.txt": "a file beside the class folders",
        "Thumbs.db": "its name is not that of a JPEG, PNG, WebP, BMP, GIF, TIFF or PPM file",
        ".hidden.png": "its name begins with a dot",
        "more": "a folder inside a class folder",
    }
    assert len(found.classes["Tit"]) == 4


def test_empty_class(tree: Path) -> None:
    (tree / "owl").mkdir()
    sentence = said(lambda: folder_domain(tree))
    assert (
        sentence
        == f"{tree}: the class 'owl' has no image: a class needs two at least, add some or take it out"
    )


def test_class_with_one_image(tree: Path) -> None:
    put(tree / "owl", 1)
    assert "the class 'owl' has one image only: a class needs two" in said(lambda: folder_domain(tree))


@pytest.mark.skipif(sys.platform != "linux", reason="the file system takes these names for one")
@pytest.mark.parametrize(("one", "other"), [("Owl", "owl"), ("caf\u00e9", "cafe\u0301"), ("owl", "owl ")])
def test_two_classes_with_one_name(tree: Path, one: str, other: str) -> None:
    put(tree / one)
    put(tree / other)
    sentence = said(lambda: folder_domain(tree))
    assert repr(one) in sentence
    assert repr(other) in sentence
    assert "rename one or put them together" in sentence


@pytest.mark.skipif(sys.platform != "linux", reason="the file system takes text alone")
def test_a_folder_name_that_is_no_text(tree: Path, tmp_path: Path) -> None:
    latin = tree / os.fsdecode("eisvögel".encode("latin-1"))
    put(latin)
    for work in (
        lambda: folder_domain(tree, split=DrawnSplit()),
        lambda: convert_folder(tree, tmp_path / "out"),
        lambda: folder_items(tree),
    ):
        sentence = said(work)
        assert sentence == f"{tree}: the folder name 'eisv\\udcf6gel' is not UTF-8 text: rename it"
    latin.rename(tree / "eisvögel")
    assert "eisvögel" in folder_domain(tree).spec.class_names
    there = tree.rename(tmp_path / os.fsdecode(b"v\xf6gel"))
    assert "the folder name 'v\\udcf6gel' is not UTF-8" in said(lambda: folder_domain(there))
    assert folder_domain(there, "birds").name == "birds"


def test_no_classes(tmp_path: Path) -> None:
    assert "there are no class folders in it: put the images" in said(lambda: folder_domain(tmp_path))
    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    assert "there are 1 images and no class folders" in said(lambda: folder_domain(tmp_path))
    assert "this is a file, not a folder" in said(lambda: folder_domain(tmp_path / "a.png"))
    assert "this is not there" in said(lambda: folder_domain(tmp_path / "missing"))


def test_a_bad_image_is_named(tree: Path) -> None:
    (tree / "Tit" / "1.png").write_text("not a picture")
    domain = folder_domain(tree)
    sentence = said(lambda: domain.source.read([(0, 1)]))
    assert sentence.startswith(f"{tree / 'Tit' / '1.png'}: this is no picture")


def test_a_file_that_went_away_is_named(tree: Path) -> None:
    domain = folder_domain(tree)
    (tree / "Tit" / "1.png").unlink()
    sentence = said(lambda: domain.source.read([(0, 1)]))
    assert sentence.startswith(
        f"{tree / 'Tit' / '1.png'}: the file cannot be read (No such file or directory): "
    )


def test_given_split_sets_the_order_of_ids(tree: Path) -> None:
    split: GivenSplit = {"train": ["wren", "Tit"], "test": ["häher", "crow"]}
    domain = folder_domain(tree, split=split, role="seen")
    assert domain.spec.class_names == ("wren", "Tit", "häher", "crow")
    assert [domain.spec.splits[s] for s in SPLITS] == [range(2), range(2, 2), range(2, 4)]
    assert domain.source.read([(0, 0)])[0][0, 0].tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("split", "words"),
    [
        (
            {"train": ["wren", "Tit", "crow"], "test": ["hähr"]},
            "names 'hähr', and there is no such class; did you mean 'häher'?",
        ),
        ({"train": ["wren", "Tit", "crow", "häher", "wren"]}, "names 'wren' more than once"),
        ({"test": ["wren", "Tit"]}, "does not say where 'crow' belongs (2 classes in all)"),
    ],
)
def test_wrong_given_splits(tree: Path, split: GivenSplit, words: str) -> None:
    assert words in said(lambda: folder_domain(tree, split=split))


def test_drawn_split_is_a_function_of_names_and_seed() -> None:
    names = [f"class {n}" for n in range(100)]
    split = split_classes(names, DrawnSplit(seed=3), "x")
    assert [len(split[s]) for s in SPLITS] == [70, 15, 15]
    assert sorted(name for s in SPLITS for name in split[s]) == sorted(names)
    backwards = split_classes(names[::-1], DrawnSplit(seed=3), "x")
    assert all(split[s] == backwards[s][::-1] for s in SPLITS)
    assert split != split_classes(names, DrawnSplit(seed=4), "x")
    assert split["valid"][:3] == ("class 7", "class 9", "class 26")  # for ever


@pytest.mark.parametrize("count", range(1, 12))
@pytest.mark.parametrize(
    "shares", [(0.7, 0.15, 0.15), (0.0, 0.5, 0.5), (0.0, 0.0, 1.0), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0)]
)
def test_drawn_split_keeps_every_class(count: int, shares: tuple[float, float, float]) -> None:
    names = [str(n) for n in range(count)]
    split = split_classes(names, DrawnSplit(*shares), "x")
    assert sorted(name for s in SPLITS for name in split[s]) == sorted(names)
    for s, share in zip(SPLITS, shares, strict=True):
        assert share > 0 or split[s] == ()


def test_shares_that_are_no_split() -> None:
    assert "add up to 1" in said(lambda: DrawnSplit(0.5, 0.1, 0.1))
    assert "add up to 1" in said(lambda: DrawnSplit(float("nan"), 0.5, 0.5))


def test_split_file(tmp_path: Path) -> None:
    path = tmp_path / "split.json"
    path.write_text(json.dumps({"train": ["a"], "test": ["b"]}))
    assert read_split(path) == {"train": ("a",), "valid": (), "test": ("b",)}
    for content, words in [
        ("{", "no JSON"),
        ("[]", "other keys"),
        ('{"dev": []}', "other keys"),
        ('{"test": [1]}', "test is not a list"),
    ]:
        path.write_text(content)
        assert words in said(lambda: read_split(path))
    assert "cannot be read" in said(lambda: read_split(tmp_path / "none.json"))


def test_tasks_from_a_folder(tree: Path) -> None:
    images = folder_domain(tree).source.read([(1, 0), (1, 1)])
    assert np.abs(images[0].astype(int) - 2).max() <= 2
