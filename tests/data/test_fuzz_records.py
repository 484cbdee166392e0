"""Thousands of damaged files: refused by a sentence or read right; no crash, no hang, no memory filled."""

import copy
import json
import random
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_records import images_of, png, small_domain

from fewshift.data.crc32c import crc32c, masked
from fewshift.data.example import Malformed, decode_example, encode_example
from fewshift.data.index_cache import INDEX_FILE, load_index
from fewshift.data.official import official_spec
from fewshift.data.records import RecordSource
from fewshift.data.scan import scan_files
from fewshift.data.scan_window import ClassFile, Scan
from fewshift.data.spec import Spec
from fewshift.data.spec_json import parse_spec
from fewshift.data.spec_write import spec_text
from fewshift.data.suite_file import read_suite
from fewshift.data.tfrecord import frame, hop
from fewshift.errors import DataError
from fewshift.types import SPLITS

CLASS_ID = 3
T = TypeVar("T")
Mutation = Callable[[random.Random, bytearray], None]


def flip_bits(dice: random.Random, data: bytearray) -> None:
    for _ in range(dice.choice([1, 1, 1, 2, 5])):
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)


def write_bytes(dice: random.Random, data: bytearray) -> None:
    at = dice.randrange(len(data))
    data[at : at + dice.randrange(1, 12)] = dice.randbytes(dice.randrange(1, 12))


def cut(dice: random.Random, data: bytearray) -> None:
    del data[dice.randrange(len(data)) :]


def remove_part(dice: random.Random, data: bytearray) -> None:
    at = dice.randrange(len(data))
    del data[at : at + dice.randrange(1, 300)]


def repeat_part(dice: random.Random, data: bytearray) -> None:
    at = dice.randrange(len(data))
    part = data[at : at + dice.randrange(1, 300)]
    data[dice.randrange(len(data)) : 0] = part


def zero_part(dice: random.Random, data: bytearray) -> None:
    at = dice.randrange(len(data))
    size = dice.randrange(1, 600)
    data[at : at + size] = bytes(len(data[at : at + size]))


def forge_length(dice: random.Random, data: bytearray) -> None:
    """With a true checksum, so that only the length itself can give it away."""
    starts = [0, *hop(bytes(data))[:-1]]
    at = dice.choice(starts)
    length = dice.choice([0, 1, 15, 16, 2**31, 2**32 + 7, 2**40, 2**63, 2**64 - 17, dice.randrange(2**64)])
    packed = struct.pack("<Q", length)
    data[at : at + 12] = packed + struct.pack("<I", masked(np.array([crc32c(packed)], np.uint32))[0])


def swap_records(dice: random.Random, data: bytearray) -> None:
    stops = hop(bytes(data))
    records = [bytes(data[a:b]) for a, b in zip([0, *stops], stops, strict=False)]
    dice.shuffle(records)
    data[:] = b"".join(records[: dice.randrange(len(records) + 1)])


MUTATIONS: list[Mutation] = [
    flip_bits,
    write_bytes,
    cut,
    remove_part,
    repeat_part,
    zero_part,
    forge_length,
    swap_records,
]


def outcome(work: Callable[[], T]) -> T | DataError:
    """What it gives, or the one kind of error it may end with."""
    try:
        return work()
    except DataError as problem:
        return problem


def mutate(dice: random.Random, data: bytes) -> bytes:
    result = bytearray(data)
    for _ in range(dice.choice([1, 1, 2])):
        if result:
            dice.choice(MUTATIONS)(dice, result)
    return bytes(result)


def scans_of(folder: Path, contents: list[bytes]) -> Iterator[tuple[bytes, Scan]]:
    folder.mkdir()
    files = []
    for number, content in enumerate(contents):
        files.append(ClassFile(folder / f"{number}.tfrecords", CLASS_ID))
        files[-1].path.write_bytes(content)
    for scan in scan_files(files):
        yield contents[int(scan.file.path.stem)], scan


def records_in(content: bytes, scan: Scan) -> list[bytes]:
    return [content[a + 12 : b - 4] for a, b in zip(scan.bounds[:-1], scan.bounds[1:], strict=True)]


def check_scans(folder: Path, original: bytes, count: int, seed: int) -> None:
    stops = hop(original)
    genuine = {original[a + 12 : b - 4] for a, b in zip([0, *stops[:-1]], stops, strict=True)}
    dice = random.Random(seed)
    faulty = 0
    for content, scan in scans_of(folder, [mutate(dice, original) for _ in range(count)]):
        faulty += bool(scan.faults)
        records = records_in(content, scan)
        blamed = {fault.record for fault in scan.faults}
        for number, record in enumerate(records):
            assert number in blamed or record in genuine, "a damaged record passed"
        if not scan.faults:
            assert scan.bounds[-1] == len(content), "bytes were left out silently"
        for fault in scan.faults:
            assert 0 <= scan.offset(fault) <= len(content)
            assert len(scan.describe(fault)) < 300
    assert faulty > count // 2


def small_file() -> bytes:
    return frame([encode_example(png(number, 2 + number % 7), CLASS_ID) for number in range(12)])


@pytest.mark.slow
def test_mutated_files(tmp_path: Path) -> None:
    check_scans(tmp_path / "files", small_file(), 3000, seed=1)


@pytest.mark.slow
@pytest.mark.data
def test_mutated_real_files(tmp_path: Path, md_mini: Path) -> None:
    for domain in ("omniglot", "quickdraw", "devanagari"):
        original = (md_mini / domain / f"{CLASS_ID}.tfrecords").read_bytes()
        check_scans(tmp_path / domain, original, 400, seed=2)


def test_unchecked_scans_of_mutated_files_end_inside_the_file(tmp_path: Path) -> None:
    dice = random.Random(3)
    original = small_file()
    for number in range(300):
        path = tmp_path / f"{number}.tfrecords"
        path.write_bytes(mutate(dice, original))
        (scan,) = scan_files([ClassFile(path, CLASS_ID)], check=False, threads=1)
        assert (np.diff(scan.bounds) >= 16).all()
        assert scan.bounds[-1] <= path.stat().st_size
        assert scan.faults or scan.bounds[-1] == path.stat().st_size


def test_mutated_contents_with_true_checksums(tmp_path: Path) -> None:
    """Damage from before the checksum was made: the parser is the last to notice."""
    dice = random.Random(4)
    contents = []
    for number in range(2000):
        payload = bytearray(
            encode_example(png(number % 20, 3), dice.choice([CLASS_ID, CLASS_ID, 300, 2**40]))
        )
        if dice.random() < 0.8:
            head = dice.random() < 0.5  # image bytes may be anything, so aim at what is around them
            at = dice.randrange(25) if head else len(payload) - 1 - dice.randrange(20)
            payload[at] = dice.choice([0, 1, 0x7F, 0x80, 0xFF, payload[at] ^ 1 << dice.randrange(8)])
        contents.append(bytes(payload))
    path = tmp_path / f"{CLASS_ID}.tfrecords"
    blamed: dict[int, str] = {}
    for first in range(0, len(contents), 50):  # a file tells of its first hundred faults
        path.write_bytes(frame(contents[first : first + 50]))
        (scan,) = scan_files([ClassFile(path, CLASS_ID)])
        blamed |= {first + fault.record: fault.kind for fault in scan.faults}
    for number, content in enumerate(contents):
        try:
            label = decode_example(content).label
        except Malformed:
            assert blamed[number] == "content"
            continue
        assert blamed.get(number) == (None if label == CLASS_ID else "label")
    assert set(blamed.values()) == {"content", "label"}
    assert len(blamed) < len(contents)


@pytest.mark.slow
def test_mutated_folders_are_read_right_or_refused(tmp_path: Path) -> None:
    folder, spec = small_domain(tmp_path, (3, 4, 3))
    original = (folder / "1.tfrecords").read_bytes()
    items = [(c, i) for c in range(3) for i in range(spec.images_per_class[c])]
    genuine = set(images_of(spec, 1))
    dice = random.Random(5)
    refused = 0
    for number in range(300):
        (folder / "1.tfrecords").write_bytes(mutate(dice, original))
        check, verify = ((True, False), (False, True))[number % 2]
        source = RecordSource(folder, spec, check=check, verify=verify)
        found = outcome(lambda source=source: source.read_encoded(items))
        if isinstance(found, DataError):
            assert "1.tfrecords: " in str(found)
            refused += 1
            continue
        assert found[:3] == images_of(spec, 0)
        assert set(found[3:7]) <= genuine
    assert 200 < refused < 300


def test_scanning_damaged_files_takes_little_memory(tmp_path: Path) -> None:
    dice = random.Random(6)
    original = small_file()
    contents = []
    for _ in range(60):
        data = bytearray(original)
        forge_length(dice, data)
        contents.append(bytes(data))
    list(scans_of(tmp_path / "warm", contents[:1]))
    tracemalloc.start()
    try:
        assert len(list(scans_of(tmp_path / "files", contents))) == 60
        assert tracemalloc.get_traced_memory()[1] < 40 * 2**20
    finally:
        tracemalloc.stop()


def test_mutated_index_files(tmp_path: Path) -> None:
    folder, spec = small_domain(tmp_path)
    RecordSource(folder, spec).prepare()
    good = (folder / INDEX_FILE).read_bytes()
    dice = random.Random(7)
    for _ in range(500):
        bad = mutate_plainly(dice, good)
        (folder / INDEX_FILE).write_bytes(bad)
        assert (load_index(folder / INDEX_FILE, 3) is None) == (bad != good)


def mutate_plainly(dice: random.Random, data: bytes) -> bytes:
    result = bytearray(data)
    dice.choice([flip_bits, write_bytes, cut, remove_part, repeat_part, zero_part])(dice, result)
    return bytes(result)


# --- specs


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
    specs = [official_spec(name) for name in ("dtd", "traffic_sign", "mscoco")]
    letters = parse_spec(
        json.dumps(
            {
                "name": "letters",
                "__class__": "BiLevelDatasetSpecification",
                "superclasses_per_split": {"TRAIN": 1, "VALID": 1, "TEST": 1},
                "classes_per_superclass": {"0": 2, "1": 1, "2": 3},
                "superclass_names": {"0": "x", "1": "y", "2": "z"},
                "class_names": {str(i): f"c{i}" for i in range(6)},
                "images_per_class": {str(i): 5 for i in range(6)},
            }
        ),
        "",
    )
    tree = official_spec("ilsvrc_2012")
    assert tree is not None
    leaves = tuple(f"n{i}" for i in range(6))
    small_tree = Spec(
        "tree",
        leaves,
        (4,) * 6,
        {"train": range(3), "valid": range(3, 4), "test": range(4, 6)},
        "hierarchical",
        {"train": (type(tree.groups["train"][0])("m", (0, 1)),), "valid": (), "test": ()},
    )
    return [spec_text(spec, "") for spec in [*specs, letters, small_tree] if spec]


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
