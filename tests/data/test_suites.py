"""Suites by name, by folder, by one small file and by a function."""

import json
import shutil
from pathlib import Path

import pytest
from PIL import Image
from small_records import png, small_domain

from fewshift.data.domain import Domain
from fewshift.data.drawn import drawn_domain
from fewshift.data.inspect import inspect_records
from fewshift.data.suites import Suite, data_folder, open_suite
from fewshift.errors import DataError
from fewshift.types import SPLITS


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEWSHIFT_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("FEWSHIFT_CACHE", str(tmp_path / "cache"))


def class_folders(root: Path, classes: int, images: int = 3) -> Path:
    for c in range(classes):
        for i in range(images):
            path = root / f"kind {c}" / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(png(100 * c + i))
    return root


def records(root: Path) -> Path:
    small_domain(root, (4, 3, 5), "small")
    small_domain(root, (3, 3, 3), "other")
    content = {"small": {"role": "seen", "licence": "CC0"}, "other": {"role": "valid_unseen"}}
    (root / "suite.json").write_text(json.dumps(content))
    return root


class TestNamed:
    def test_drawn_needs_nothing(self) -> None:
        suite = open_suite("drawn")
        assert suite.name == "drawn"
        assert len(suite) == len(suite.domains) >= 6
        assert {domain.role for domain in suite} == {"seen", "valid_unseen", "unseen"}
        assert suite["shapes"].name == "shapes"
        assert [d.name for d in suite.with_role("valid_unseen")] == ["dots"]
        assert [d.name for d in open_suite("drawn", ["cells", "shapes"])] == ["cells", "shapes"]

    def test_an_unknown_domain_is_named(self) -> None:
        with pytest.raises(DataError, match="the suite drawn has no domain 'birds': choose among shapes"):
            open_suite("drawn", ["birds"])

    @pytest.mark.parametrize(
        ("name", "way"),
        [("open", "run `fewshift data fetch` once"), ("md", "give the path of your converted")],
    )
    def test_what_is_not_here_says_how_to_get_it(self, name: str, way: str, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=f"the suite {name} is not in {tmp_path / 'data'}: {way}"):
            open_suite(name)

    def test_md_and_open_lie_in_the_data_folder(self, tmp_path: Path) -> None:
        records(tmp_path / "data" / "open")
        assert [d.role for d in open_suite("open")] == ["seen", "valid_unseen"]
        (tmp_path / "data" / "md").symlink_to(tmp_path / "data" / "open")
        assert open_suite("md").name == "md"

    def test_the_data_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        assert data_folder() == tmp_path / "data"
        monkeypatch.delenv("FEWSHIFT_DATA")
        monkeypatch.delenv("FEWSHIFT_CACHE")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
        assert data_folder() == tmp_path / "xdg" / "fewshift"
        monkeypatch.delenv("XDG_CACHE_HOME")
        assert data_folder() == Path.home() / ".cache" / "fewshift"

    def test_nonsense_lists_the_ways(self) -> None:
        with pytest.raises(
            DataError, match=r"there is no suite, folder or file 'opne': name one of drawn, open"
        ):
            open_suite("opne")


class TestFolders:
    def test_records_with_roles(self, tmp_path: Path) -> None:
        suite = open_suite(records(tmp_path / "mine"))
        assert suite.name == "mine"
        assert [(d.name, d.role) for d in suite] == [("small", "seen"), ("other", "valid_unseen")]
        assert suite["small"].provenance.licence == "CC0"

    def test_only_the_named_domains_are_touched(self, tmp_path: Path) -> None:
        root = records(tmp_path / "mine")
        (root / "other" / "0.tfrecords").write_bytes(b"broken")
        assert [d.name for d in open_suite(root, ["small"])] == ["small"]
        with pytest.raises(DataError, match=r"0\.tfrecords"):
            open_suite(root)

    def test_md_mini(self, md_mini: Path) -> None:
        suite = open_suite(md_mini)
        assert len(suite) == 16
        assert [len(suite.with_role(r)) for r in ("seen", "valid_unseen", "unseen")] == [8, 3, 5]


class TestOwnFile:
    def suite_file(self, tmp_path: Path, **domains: object) -> Path:
        file = tmp_path / "garden.json"
        file.write_text(json.dumps({"name": "garden", "domains": domains}))
        return file

    def test_records_and_folders_together(self, tmp_path: Path) -> None:
        small_domain(tmp_path / "converted", (4, 3, 5), "small")
        class_folders(tmp_path / "photos", 10)
        terms = {"licence": "CC-BY-4.0", "attribution": "me"}
        file = self.suite_file(
            tmp_path,
            birds={"records": "converted/small", "role": "seen", **terms},
            insects={"folder": "photos", "role": "seen"},
            weeds={"folder": str(tmp_path / "photos")},
        )
        suite = open_suite(file)
        assert suite.name == "garden"
        assert [(d.name, d.role) for d in suite] == [
            ("birds", "seen"),
            ("insects", "seen"),
            ("weeds", "unseen"),
        ]
        assert suite["birds"].provenance.licence == "CC-BY-4.0"
        assert suite["birds"].source.read([(2, 4)])[0].shape == (6, 6, 3)
        assert [len(suite["insects"].spec.splits[s]) for s in SPLITS] == [6, 2, 2]
        assert [len(suite["weeds"].spec.splits[s]) for s in SPLITS] == [0, 0, 10]

    def test_a_folder_may_hold_it_as_suite_json(self, tmp_path: Path) -> None:
        class_folders(tmp_path / "photos", 4)
        shutil.move(self.suite_file(tmp_path, weeds={"folder": "photos"}), tmp_path / "suite.json")
        assert [d.name for d in open_suite(tmp_path)] == ["weeds"]

    def test_records_beside_it_are_still_records(self, tmp_path: Path) -> None:
        folder, _ = small_domain(tmp_path)
        shutil.move(self.suite_file(tmp_path, mine={"records": "small"}), tmp_path / "suite.json")
        assert [d.name for d in open_suite(tmp_path)] == ["mine"]
        assert [d.name for d in open_suite(folder)] == ["small"]
        assert [(report.name, report.whole) for report in inspect_records(tmp_path)] == [("small", True)]

    def test_splits(self, tmp_path: Path) -> None:
        class_folders(tmp_path / "photos", 5)
        names = [f"kind {c}" for c in range(5)]
        lists = {"train": names[3:], "valid": [], "test": names[:3]}
        (tmp_path / "split.json").write_text(json.dumps(lists))
        file = self.suite_file(
            tmp_path,
            a={"folder": "photos", "split": {"train": 0.4, "test": 0.6, "seed": 3}},
            b={"folder": "photos", "split": lists},
            c={"folder": "photos", "split": "split.json"},
        )
        a, b, c = open_suite(file)
        assert [len(a.spec.splits[s]) for s in SPLITS] == [2, 0, 3]
        assert b.spec.class_names == c.spec.class_names == ("kind 3", "kind 4", "kind 0", "kind 1", "kind 2")

    @pytest.mark.parametrize(
        ("domain", "sentence"),
        [
            ({"recods": "x"}, r"birds has the unknown key 'recods'; did you mean 'records'\?"),
            ({"role": "seen"}, "birds must have either `records` or `folder`"),
            ({"records": "x", "folder": "x"}, "birds must have either `records` or `folder`"),
            ({"folder": "photos", "role": "test"}, "the role of birds is 'test': it must be one of seen"),
            ({"folder": "nowhere"}, "folder of birds is .*nowhere, which is no folder"),
            ({"folder": 7}, "folder of birds is 7: it must be a text"),
            ({"folder": "photos", "licence": ""}, "licence of birds is ''"),
            ({"folder": "photos", "split": {"train": 0.5}}, "train 0.5, valid 0.0, test 0.0 are no split"),
            (
                {"folder": "photos", "split": {"trian": 1}},
                "the split of birds is a JSON object of 1 entries: give",
            ),
            ({"folder": "photos", "split": {"test": "all"}}, "something else than numbers"),
            ({"folder": "photos", "split": {"test": ["kind 9"]}}, "there is no such class"),
            ({"records": "small", "split": {"test": 1.0}}, "records bring their own"),
            ("photos", "birds is 'photos': it must be a JSON object"),
        ],
    )
    def test_mistakes_are_one_sentence(self, tmp_path: Path, domain: object, sentence: str) -> None:
        class_folders(tmp_path / "photos", 3)
        small_domain(tmp_path, (4, 3, 5), "small")
        with pytest.raises(DataError, match=sentence):
            open_suite(self.suite_file(tmp_path, birds=domain))

    @pytest.mark.parametrize(
        ("text", "sentence"),
        [
            ("{", "not valid JSON"),
            ("[]", "it must hold a JSON object"),
            ('{"name": "x"}', "the key 'domains' is missing"),
            ('{"name": "x", "domains": {}}', "it lists no domain"),
            ('{"name": "x", "domain": {}}', "the key 'domain' is not known"),
            ('{"name": "", "domains": {"a": {}}}', "the name of the suite is ''"),
            ('{"domains": {"../a": {}}}', r"the name of a domain is '\.\./a': it must not start with a dot"),
            ('{"domains": {"a": {}, "a": {}}}', "the key 'a' occurs twice"),
        ],
    )
    def test_broken_files_are_named(self, tmp_path: Path, text: str, sentence: str) -> None:
        file = tmp_path / "own.json"
        file.write_text(text)
        with pytest.raises(DataError, match=rf"own\.json: .*{sentence}"):
            open_suite(file)

    def test_a_binary_file_is_no_suite(self, tmp_path: Path) -> None:
        file = tmp_path / "own.json"
        Image.new("L", (3, 3)).save(file, "PNG")
        with pytest.raises(DataError, match="it cannot be read as text"):
            open_suite(file)


def two_domains() -> list[Domain]:
    return [drawn_domain("shapes"), drawn_domain("cells")]


def a_suite() -> Suite:
    return Suite("named", tuple(two_domains()))


class TestFunctions:
    def test_a_function_is_a_suite(self) -> None:
        assert [d.name for d in open_suite(two_domains)] == ["shapes", "cells"]
        assert open_suite(two_domains).name == "two_domains"
        assert open_suite(a_suite, ["cells"]).name == "named"

    def test_by_its_name(self) -> None:
        assert [d.name for d in open_suite("test_suites:two_domains")] == ["shapes", "cells"]

    @pytest.mark.parametrize("text", ["no_such_module:x", "test_suites:nothing", "test_suites:SPLITS"])
    def test_what_cannot_be_imported_is_named(self, text: str) -> None:
        with pytest.raises(DataError, match=f"the suite '{text}' (cannot be imported|is no function)"):
            open_suite(text)

    def test_something_else_than_domains_is_refused(self) -> None:
        with pytest.raises(DataError, match="did not return domains"):
            open_suite(list)
        with pytest.raises(DataError, match="did not return domains"):
            open_suite(lambda: [1, 2])  # type: ignore[list-item]

    def test_two_domains_of_one_name_are_refused(self) -> None:
        with pytest.raises(DataError, match="two domains named 'cells'"):
            open_suite(lambda: [drawn_domain("cells"), drawn_domain("cells")])
