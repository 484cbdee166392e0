"""Which classes are for training, which for choosing, which for testing: given, or drawn from a seed."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TypeAlias

from fewshift.data.spec import Spec, flat_spec
from fewshift.errors import DataError
from fewshift.types import SPLITS, Split

GivenSplit: TypeAlias = Mapping[Split, Sequence[str]]  # the names of its classes, in the order of their ids


@dataclass(frozen=True, slots=True)
class DrawnSplit:
    """Shares of the classes, and the seed that says which. The same names are split alike everywhere."""

    train: float = 0.7
    valid: float = 0.15
    test: float = 0.15
    seed: int = 0

    def __post_init__(self) -> None:
        shares = (self.train, self.valid, self.test)
        if not (min(shares) >= 0 and abs(sum(shares) - 1) <= 1e-6):  # not-a-number is no share
            raise DataError(
                f"the shares train {self.train}, valid {self.valid}, test {self.test} are no split: "
                "give three numbers from 0 to 1 that add up to 1"
            )


ALL_TEST = DrawnSplit(0.0, 0.0, 1.0)  # a domain nobody trains on
ClassSplit: TypeAlias = DrawnSplit | GivenSplit


def split_spec(name: str, counts: Mapping[str, int], split: ClassSplit, where: str) -> Spec:
    """The flat spec of a domain whose classes have so many images; `where` names it in errors."""
    check_names(counts, where)
    for class_name, count in counts.items():
        if count < 2:  # one to learn from and one to ask about
            have = "no image" if count == 0 else "one image only"
            raise DataError(
                f"{where}: the class {class_name!r} has {have}: a class needs two at least, add some or take "
                "it out"
            )
    parts = split_classes(list(counts), split, where)
    names = tuple(c for s in SPLITS for c in parts[s])
    return flat_spec(name, names, tuple(counts[c] for c in names), {s: len(parts[s]) for s in SPLITS})


def split_classes(names: Sequence[str], split: ClassSplit, where: str) -> dict[Split, tuple[str, ...]]:
    """The classes of each split; a given split must name every class once."""
    if isinstance(split, DrawnSplit):
        return _draw(names, split)
    given = {s: tuple(split.get(s, ())) for s in SPLITS}
    flat = [name for s in SPLITS for name in given[s]]
    for name in flat:
        if name not in names:
            meant = did_you_mean(name, names)
            raise DataError(f"{where}: the split names {name!r}, and there is no such class{meant}")
        if flat.count(name) > 1:
            raise DataError(f"{where}: the split names {name!r} more than once: name each class once")
    if left := sorted(set(names) - set(flat)):
        raise DataError(
            f"{where}: the split does not say where {left[0]!r} belongs ({len(left)} classes in all): "
            "add them to train, valid or test"
        )
    return given


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name."""
    near = get_close_matches(name, known, 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _draw(names: Sequence[str], split: DrawnSplit) -> dict[Split, tuple[str, ...]]:
    order = sorted(names, key=lambda name: hashlib.sha256(f"{split.seed}:{name}".encode()).digest())
    count = len(order)
    valid, test = (int(share * count + 0.5) for share in (split.valid, split.test))
    train = max(count - valid - test, 0)
    if split.train == 0:  # then rounding must not leave a class over
        train, valid = 0, (count if split.test == 0 else valid)
    parts = (order[:train], order[train : train + valid], order[train + valid :])
    chosen = {s: set(part) for s, part in zip(SPLITS, parts, strict=True)}
    return {s: tuple(name for name in names if name in chosen[s]) for s in SPLITS}


def read_split(path: Path) -> GivenSplit:
    """A split file: {"train": [names], "valid": [names], "test": [names]}, as Meta-Dataset publishes them."""
    remedy = 'it must read {"train": [names], "valid": [names], "test": [names]}'
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as problem:
        raise DataError(
            f"{path}: the split cannot be read ({problem.strerror or problem}): "
            "give three shares such as 0.7,0.15,0.15 or such a file"
        ) from problem
    except ValueError as problem:
        raise DataError(f"{path}: the split is no JSON ({problem}): {remedy}") from problem
    if not isinstance(content, dict) or not content.keys() <= set(SPLITS):
        raise DataError(f"{path}: the split has other keys than train, valid and test: {remedy}")
    for split, names in content.items():
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise DataError(f"{path}: {split} is not a list of class names: {remedy}")
    return {split: tuple(content.get(split, ())) for split in SPLITS}


def check_names(names: Iterable[str], where: str) -> None:
    """Refuse a name that is no text, and two that a person, or another computer's files, take for one."""
    seen: dict[str, str] = {}
    for name in names:
        check_text(name, where)
        plain = unicodedata.normalize("NFKC", name).casefold().strip()
        if plain in seen:
            raise DataError(
                f"{where}: the classes {seen[plain]!r} and {name!r} have one name but for case, spaces or "
                "accents' spelling: rename one or put them together"
            )
        seen[plain] = name


def check_text(name: str, where: str) -> None:
    """Refuse a folder's name in another encoding than UTF-8: it can seed no task and stand in no file."""
    try:
        name.encode()
    except UnicodeEncodeError:
        raise DataError(f"{where}: the folder name {name!a} is not UTF-8 text: rename it") from None
