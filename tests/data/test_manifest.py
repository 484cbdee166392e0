"""Manifests: what is saved comes back, and what does not fit the data is refused."""

import gzip
import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fewshift.data.manifest import Manifest, load_manifest, make_manifest, save_manifest, what_is_wrong
from fewshift.data.official import official_spec
from fewshift.data.protocol import FIVE_SHOT, ONE_SHOT, VARYING, Protocol, free
from fewshift.data.spec import Spec, flat_spec
from fewshift.errors import DataError, FewshiftError


def small(name: str = "shells", images: int = 20) -> Spec:
    return flat_spec(name, tuple(map(str, range(12))), (images,) * 12, {"train": 6, "test": 6})


@pytest.fixture
def manifest() -> Manifest:
    return make_manifest([small(), small("coins")], "test", VARYING, 7, 3)


def rewrite(path: Path, line: int, **changes: Any) -> None:
    """Change fields of one line and make the checksum right again."""
    lines = [json.loads(text) for text in path.read_text().splitlines()]
    lines[line] = {**lines[line], **changes}
    body = "".join(json.dumps(fields, separators=(",", ":")) + "\n" for fields in lines[1:])
    lines[0]["sha256"] = hashlib.sha256(body.encode()).hexdigest()
    path.write_text(json.dumps(lines[0]) + "\n" + body)


@pytest.mark.parametrize("name", ["tasks.jsonl", "tasks.jsonl.gz", "new folder/tasks.jsonl"])
@pytest.mark.parametrize("protocol", [VARYING, FIVE_SHOT, ONE_SHOT, free(5, 2, 3), Protocol(min_images=4)])
def test_what_is_saved_comes_back(name: str, protocol: Protocol, tmp_path: Path) -> None:
    specs = [small(), small("coins")]
    manifest = make_manifest(specs, "test", protocol, 7, 3)
    save_manifest(manifest, tmp_path / name)
    assert load_manifest(tmp_path / name, [*specs, small("unused")]) == manifest
    assert len(manifest.plans) == 6
    assert [file.name for file in (tmp_path / name).parent.iterdir()] == [Path(name).name]


def test_official_tasks_go_through_a_file(tmp_path: Path) -> None:
    spec = official_spec("ilsvrc_2012")
    assert spec is not None
    manifest = make_manifest([spec], "test", VARYING, 0, 20)
    save_manifest(manifest, tmp_path / "tasks.jsonl.gz")
    assert load_manifest(tmp_path / "tasks.jsonl.gz", [spec]) == manifest


def test_equal_manifests_give_equal_files(manifest: Manifest, tmp_path: Path) -> None:
    for name in ("a.gz", "b.gz"):
        save_manifest(manifest, tmp_path / name)
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


def test_the_header_says_what_it_is(manifest: Manifest, tmp_path: Path) -> None:
    save_manifest(manifest, tmp_path / "tasks.jsonl")
    header = json.loads((tmp_path / "tasks.jsonl").read_text().splitlines()[0])
    assert (header["protocol_name"], header["seed"], header["tasks"]) == ("varying", 7, 6)
    assert header["specs"] == {s.name: s.fingerprint() for s in (small(), small("coins"))}
    assert header["protocol"]["max_way"] == 50


def test_other_data_are_refused(manifest: Manifest, tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    save_manifest(manifest, path)
    with pytest.raises(
        DataError, match=r"tasks.jsonl: it was made for other data of 'coins' \(spec \w+, here \w+\)"
    ):
        load_manifest(path, [small(), small("coins", images=21)])
    with pytest.raises(DataError, match=r"it has tasks of 'coins', not one of shells: add that domain"):
        load_manifest(path, [small()])


def test_mixed_plans_are_not_saved(manifest: Manifest, tmp_path: Path) -> None:
    with pytest.raises(
        FewshiftError, match=r"task 0 of shells .* is of protocol varying, and the manifest of five"
    ):
        save_manifest(replace(manifest, protocol=FIVE_SHOT), tmp_path / "tasks.jsonl")
    with pytest.raises(
        FewshiftError, match=r"seed 7.* is of protocol varying, and the manifest of varying, seed 8"
    ):
        save_manifest(replace(manifest, seed=8), tmp_path / "tasks.jsonl")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("line", "changes", "said"),
    [
        (0, {"format": "other"}, "this is not a manifest of tasks"),
        (0, {"seed": "7"}, "its first line lacks a seed"),
        (0, {"specs": ["shells"]}, "its first line lacks a seed, specs"),
        (0, {"protocol": {"max_way": 50}}, "are missing or not known"),
        (0, {"protocol": VARYING.to_dict() | {"max_way": 3}}, "min_way 5 is above max_way 3"),
        (0, {"tasks": 9}, "6 tasks of 9 are there"),
        (1, {"domain": 3}, "line 2: a task needs a domain, a split and an index"),
        (1, {"split": "dev"}, "line 2: a task needs"),
        (1, {"index": True}, "line 2: a task needs"),
        (1, {"index": -1}, "line 2: a task needs"),
        (1, {"domain": "stars"}, "is of a domain that the first line lacks"),
        (1, {"index": 1}, r"line 3: task 1 of shells \(test split, seed 7\) occurs twice"),
        (1, {"classes": "6,7"}, "must be lists of integers"),
        (1, {"classes": [6.0]}, "must be lists of integers"),
        (1, {"support": 4}, "lists of lists"),
        (1, {"query": [[1], [True]]}, "must be lists of integers"),
        (1, {"classes": [6]}, "it has 1 classes"),
        (1, {"classes": [6], "support": [[0]], "query": [[1]]}, "two or more classes"),
        (1, {"classes": [6, 6], "support": [[0], [0]], "query": [[1], [1]]}, "each of them once"),
        (
            1,
            {"classes": [6, 5], "support": [[0], [0]], "query": [[1], [1]]},
            "class 5 is not in the test split",
        ),
        (1, {"classes": [6, 7], "support": [[0], []], "query": [[1], [1]]}, "class 7 has no support image"),
        (1, {"classes": [6, 7], "support": [[0], [1]], "query": [[], [0]]}, "class 6 has no query image"),
        (1, {"classes": [6, 7], "support": [[0], [1]], "query": [[1], [1]]}, "class 7 uses an image twice"),
        (1, {"classes": [6, 7], "support": [[0], [1]], "query": [[1], [20]]}, "class 7 has 20 images, num"),
        (1, {"classes": [6, 7], "support": [[0], [1]], "query": [[-1], [2]]}, "class 6 has 20 images, num"),
    ],
)
def test_wrong_lines_are_refused(
    manifest: Manifest, tmp_path: Path, line: int, changes: dict[str, Any], said: str
) -> None:
    path = tmp_path / "tasks.jsonl"
    save_manifest(manifest, path)
    rewrite(path, line, **changes)
    with pytest.raises(DataError, match=said):
        load_manifest(path, [small(), small("coins")])


def test_any_changed_or_missing_byte_is_noticed(manifest: Manifest, tmp_path: Path) -> None:
    specs = [small(), small("coins")]
    path, packed = tmp_path / "tasks.jsonl", tmp_path / "tasks.jsonl.gz"
    save_manifest(manifest, path)
    save_manifest(manifest, packed)
    plain, gz = path.read_bytes(), packed.read_bytes()
    for place in range(len(plain.splitlines()[0]) + 1, len(plain), 97):
        path.write_bytes(plain[:place] + bytes([plain[place] ^ 1]) + plain[place + 1 :])
        with pytest.raises(DataError, match="checksum"):
            load_manifest(path, specs)
    for end in (0, 5, len(gz) // 2, len(gz) - 3):
        packed.write_bytes(gz[:end])
        with pytest.raises(
            DataError, match=r"tasks.jsonl.gz(: it cannot be read|, line 1: this is not JSON)"
        ):
            load_manifest(packed, specs)
    for end in (0, 40, len(plain) // 2, len(plain) - 1):
        path.write_bytes(plain[:end])
        with pytest.raises(DataError):
            load_manifest(path, specs)


@pytest.mark.parametrize("content", [b"", b"[]\n", b"[" * 100_000, b"\xff\xfe\n", b"{}\n", b'{"format":1}'])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_other_files_are_refused(content: bytes, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"file{suffix}"
    path.write_bytes(gzip.compress(content) if suffix else content)
    with pytest.raises(DataError, match=str(path)):
        load_manifest(path, [small()])


def test_missing_files_and_folders_are_named(tmp_path: Path) -> None:
    for path in (tmp_path / "none.jsonl", tmp_path / "none.gz", tmp_path):
        with pytest.raises(DataError, match=f"{path}: it cannot be read"):
            load_manifest(path, [small()])


def test_planned_tasks_are_right(manifest: Manifest) -> None:
    assert all(what_is_wrong(plan, small(plan.address.domain)) is None for plan in manifest.plans)
