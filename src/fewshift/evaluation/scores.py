"""One task, one method, one line: the only thing an evaluation writes and a report reads."""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from fewshift.errors import DataError


@dataclass(frozen=True, slots=True)
class Key:
    """What a results file holds at most once."""

    method: str
    domain: str
    split: str
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How one method did on one task, with everything needed to know what that number means."""

    method: str
    domain: str
    split: str
    index: int
    accuracy: float  # of the queries, in [0, 1]; a query with a non-finite logit counts as wrong
    seconds: float  # adaptation and prediction, device synchronised
    way: int
    support: int  # images
    queries: int  # images
    seed: int
    protocol: str
    oracle: bool  # did the method use the knowledge whether the domain was trained on?
    seen: bool | None  # was the domain trained on? None: not known
    role: str | None = None  # seen, valid_unseen or unseen
    revealed: bool | None = None  # was `seen` put into the task, so that a method could use it?
    spec: str | None = None  # fingerprint of the domain's classes and counts: equal ones give equal tasks
    pixels: str | None = None  # size and rule of the images
    kit: str | None = None
    fingerprint: str | None = None  # of the kit
    engine: str | None = None
    device: str | None = None
    memory: int | None = None  # peak bytes on the device, where it counts them
    failure: str | None = None  # what went wrong on this task, in words
    versions: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)  # the method's: coefficients, rates, losses

    @property
    def key(self) -> Key:
        """The line's name in a results file."""
        return Key(self.method, self.domain, self.split, self.index)


_FIELDS = {f.name: f for f in fields(Score)}
_REQUIRED = tuple(
    name for name, f in _FIELDS.items() if f.default is MISSING and f.default_factory is MISSING
)
# JSON gives exact types, so that true is no number and 1 is no truth.
_KINDS: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "bool | None": (bool, type(None)),
    "str | None": (str, type(None)),
    "int | None": (int, type(None)),
    "Mapping[str, str]": (dict,),
    "Mapping[str, Any]": (dict,),
}
_TYPES = {name: _KINDS[str(f.type)] for name, f in _FIELDS.items()}


def to_line(score: Score) -> str:
    """The score as one line of JSON with its newline; empty fields are left out."""
    filled = {k: v for k, v in asdict(score).items() if k in _REQUIRED or v not in (None, {})}
    return json.dumps(filled, separators=(",", ":"), allow_nan=False) + "\n"


def from_line(line: str, where: str) -> Score:
    """The score in a line; `where` (file:line) opens the sentence that says what is wrong with it."""
    try:
        content = json.loads(line)
    except (ValueError, RecursionError) as problem:
        what = "nested too deeply" if isinstance(problem, RecursionError) else str(problem)
        raise DataError(f"{where}: not a line of JSON ({what}); remove that line") from None
    if not isinstance(content, dict):
        raise DataError(f"{where}: a score is a JSON object, this is {type(content).__name__}")
    missing = [name for name in _REQUIRED if name not in content]
    if missing:
        raise DataError(
            f"{where}: the score has no {', '.join(missing)}; was this written by fewshift evaluate?"
        )
    unknown = sorted(content.keys() - _FIELDS.keys())
    if unknown:
        raise DataError(
            f"{where}: unknown field {unknown[0]!r}; a newer fewshift may have written it: upgrade"
        )
    for name, value in content.items():
        if type(value) not in _TYPES[name]:
            raise DataError(f"{where}: {name} is {value!r}, expected {_FIELDS[name].type}")
    if not 0 <= content["accuracy"] <= 1:
        raise DataError(f"{where}: accuracy is {content['accuracy']!r}, expected a share from 0 to 1")
    if not 0 <= content["seconds"] < math.inf:
        raise DataError(f"{where}: seconds is {content['seconds']!r}, expected a finite duration")
    return Score(**content)


def is_whole(line: str) -> bool:
    """Is this a score, and not just the beginning of one?"""
    try:
        from_line(line, "line")
    except DataError:
        return False
    return True


class Read(NamedTuple):
    """A score and where it was read, so that a complaint about it can name the place."""

    score: Score
    where: str


def read_scores(paths: Iterable[Path]) -> Iterator[Read]:
    """The scores of these files, gzipped or not. A last line that is cut short is still being written."""
    for path in paths:
        yield from _read(path)


def _read(path: Path) -> Iterator[Read]:
    try:
        with _opened(path) as lines:
            for number, line in enumerate(lines, 1):
                where = f"{path}:{number}"
                if not line.isspace() and (line.endswith("\n") or is_whole(line)):
                    yield Read(from_line(line, where), where)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as problem:
        reason = getattr(problem, "strerror", None) or getattr(problem, "reason", None) or problem
        raise DataError(
            f"{path}: cannot be read as results ({reason}): give a file that fewshift evaluate wrote"
        ) from None


def _opened(path: Path) -> TextIO:
    return gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8")
