"""Strict readers of the fields of specs and suite files: each answers a wrong value with a sentence."""

from __future__ import annotations

import json
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from fewshift.errors import DataError
from fewshift.types import SPLITS, Split

T = TypeVar("T")

MAX_IMAGES = 10**8  # per class; the largest official one has 340,029
MAX_NAME = 1000  # characters
SPLIT_KEYS: Mapping[Split, str] = {"train": "TRAIN", "valid": "VALID", "test": "TEST"}


@dataclass(frozen=True)
class Fields:
    """The top level of a spec file and the name of that file for errors."""

    where: str
    values: Mapping[str, Any]

    def refuse(self, problem: str) -> NoReturn:
        """Raise the `DataError` that names the file."""
        raise DataError(f"{self.where}: {problem}")

    def object(self, key: str) -> Mapping[str, Any]:
        """The JSON object under this key."""
        if key not in self.values:
            self.refuse(f"the key {key!r} is missing: copy the file again or write it anew")
        return self.mapping(self.values[key], key)

    def mapping(self, value: Any, what: str) -> Mapping[str, Any]:
        """A JSON object."""
        if not isinstance(value, dict):
            self.refuse(f"{what} is {show(value)}: it must be a JSON object")
        return value

    def text(self, value: Any, what: str) -> str:
        """A name: not empty, not endless, and safe to print."""
        if not isinstance(value, str) or not value.strip() or len(value) > MAX_NAME:
            self.refuse(f"{what} is {show(value)}: it must be a text of 1 to {MAX_NAME} characters")
        if any(unicodedata.category(letter) in ("Cc", "Cs") for letter in value):
            self.refuse(f"{what} is {show(value)}: it must not have control characters or broken Unicode")
        return value

    def domain_name(self, value: Any, what: str) -> str:
        """A name that can become a file's and a part of task addresses."""
        name = self.text(value, what)
        if name != name.strip() or name.startswith(".") or any(letter in name for letter in "/\\:"):
            self.refuse(
                f"{what} is {show(name)}: it must not start with a dot nor contain / \\ : or outer spaces"
            )
        return name

    def whole(self, value: Any, what: str, least: int, most: int = MAX_IMAGES) -> int:
        """A whole number within bounds; 3.0 and true are none."""
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            self.refuse(f"{what} is {show(value)}: it must be a whole number from {least} to {most:,}")
        return value

    def by_split(self, key: str, read: Callable[[Any, str], T]) -> dict[Split, T]:
        """{"TRAIN": .., "VALID": .., "TEST": ..}, all three of them and nothing else."""
        values = self.object(key)
        for name in values:
            if name not in SPLIT_KEYS.values():
                self.refuse(f"{key} has the key {show(name)}: it may have TRAIN, VALID and TEST only")
        for name in SPLIT_KEYS.values():
            if name not in values:
                self.refuse(f"{key} lacks {name}: all of TRAIN, VALID and TEST must be there, even if empty")
        return {split: read(values[SPLIT_KEYS[split]], f"{key} of {SPLIT_KEYS[split]}") for split in SPLITS}

    def by_id(self, key: str, read: Callable[[Any, str], T], expected: int, why: str) -> tuple[T, ...]:
        """{"0": .., "1": ..}: the ids 0 to expected - 1, each once, in any order."""
        values = self.object(key)
        if len(values) != expected:
            self.refuse(
                f"{key} has {len(values)} entries but {why} {expected}: one of the two is wrong, "
                "so copy the file again or write it anew"
            )
        for name in values:
            # int() also takes "+3", "03", " 3" and "٣", by which two keys could mean one class
            if not (
                name.isascii() and name.isdigit() and str(int(name[:20])) == name and int(name) < expected
            ):
                self.refuse(f"{key} has the key {show(name)}: ids must be 0 to {expected - 1} without a gap")
        return tuple(read(values[str(i)], f"{key} of {i}") for i in range(expected))


def load_fields(text: str, where: str) -> Fields:
    """Parse the JSON text; a key written twice is refused, since one of its values would be lost."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
            raise DataError(f"{where}: the key {show(twice)} occurs twice in one object: keep one of them")
        return result

    try:
        values = json.loads(text, object_pairs_hook=unique)
    except DataError:
        raise
    except (ValueError, RecursionError) as problem:
        what = "it is nested too deeply" if isinstance(problem, RecursionError) else str(problem)
        raise DataError(
            f"{where}: this is not valid JSON ({what}): copy the file again or write it anew"
        ) from problem
    if not isinstance(values, dict):
        raise DataError(f"{where}: the file holds {show(values)}: it must hold a JSON object")
    return Fields(where, values)


def read_fields(file: Path, remedy: str) -> Fields:
    """The fields of a JSON file; `remedy` says what to do about one that is not text."""
    try:
        return load_fields(file.read_text(encoding="utf-8-sig"), str(file))
    except (OSError, UnicodeDecodeError) as problem:
        raise DataError(f"{file}: it cannot be read as text ({problem}): {remedy}") from problem


def show(value: Any) -> str:
    """A value as it may stand in a sentence: short and printable."""
    if isinstance(value, dict | list):
        return f"a JSON {'object' if isinstance(value, dict) else 'array'} of {len(value)} entries"
    if isinstance(value, int) and abs(value) >= 10**40:
        return "a number of over 40 digits"
    text = ascii(value) if isinstance(value, str) and not value.isprintable() else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
