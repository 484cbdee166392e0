"""What a search for rates has tried, in a file: an interrupted one goes on where it stopped."""

from __future__ import annotations

import json
import os
from collections import UserDict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from fewshift.data.whole_files import write_whole
from fewshift.errors import DataError

Key: TypeAlias = tuple[str, ...]  # method, kind of domains, and the point's numbers as text


class KeptPoints(UserDict[Key, float]):
    """Accuracies by point, each on the disk before the next is tried.

    The first line says what search the file is of. A file of another search is started over: all that it
    holds can be computed again.
    """

    def __init__(self, path: Path, search: Mapping[str, Any]) -> None:
        super().__init__()
        self.path, self.head, self.begun = path, json.dumps(search, sort_keys=True), False
        try:
            first, *lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
        except FileNotFoundError:
            return
        if first == self.head:
            self.data |= dict(_points(lines[:-1]))  # the last is empty, or what a killed process left of one

    def __setitem__(self, key: Key, value: float) -> None:
        super().__setitem__(key, value)
        try:
            if self.begun:
                _append(self.path, _line(key, value))
            else:  # whole and of this search, replacing what was there
                lines = [self.head, *(_line(*kept) for kept in self.items())]
                write_whole(self.path, "".join(f"{line}\n" for line in lines).encode())
        except OSError as problem:
            why = f"cannot be written ({problem.strerror})"
            raise DataError(f"{self.path}: {why}; make room and give the same command again") from None
        self.begun = True


def _append(path: Path, line: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")
        file.flush()
        os.fsync(file.fileno())


def _line(key: Key, value: float) -> str:
    return json.dumps([*key, value])


def _points(lines: Iterable[str]) -> Iterator[tuple[Key, float]]:
    for line in lines:
        try:
            *key, value = json.loads(line)
        except (ValueError, TypeError):  # not one of ours
            continue
        yield tuple(key), value
