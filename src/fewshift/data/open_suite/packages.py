"""The packages of the open suite: exact versions, checksums, licences."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Package:
    """One npm package, pinned."""

    name: str
    version: str
    sha256: str  # of the tarball
    size: int  # bytes of the tarball
    licence: str
    author: str
    home: str = ""

    @property
    def spec(self) -> str:
        """The package as npm is asked for it."""
        return f"{self.name}@{self.version}"

    @property
    def file_name(self) -> str:
        """The file that `npm pack` writes."""
        return f"{self.name.removeprefix('@').replace('/', '-')}-{self.version}.tgz"


def licences_of(names: Iterable[str]) -> str:
    """The licences that these packages state, the most frequent first."""
    counts = Counter(pinned()[name].licence for name in names)
    return ", ".join(licence for licence, _ in counts.most_common())


@cache
def pinned() -> dict[str, Package]:
    """Every package by its npm name."""
    text = files(__package__).joinpath("packages.json").read_text(encoding="utf-8")
    return {name: Package(name=name, **fields) for name, fields in json.loads(text).items()}
