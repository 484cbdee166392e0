"""Suites: domains that are trained and tested together; by name, folder, one small file or a function.

| what is given | what it is |
|---|---|
| `drawn` | eight domains drawn by code |
| `open` | the default suite, once `fewshift data fetch` has made it |
| `md` | converted Meta-Dataset in the folder `md` of the data folder (a link will do) |
| a folder | converted domains, one folder each; roles from its `suite.json` or from Meta-Dataset |
| a `.json` file | a suite of one's own (`fewshift.data.own_suite`) |
| `module:function` or a function | whatever domains it returns |
"""

from __future__ import annotations

import importlib
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from fewshift.data.domain import Domain, Role
from fewshift.data.drawn import drawn_suite
from fewshift.data.own_suite import open_own_suite
from fewshift.data.records_folder import open_records
from fewshift.data.suite_cache import with_exact_caches
from fewshift.data.suite_file import SUITE_FILE, is_own_suite
from fewshift.data.user_cache import cache_folder
from fewshift.errors import DataError
from fewshift.progress import Track, silent

NAMED = ("drawn", "open", "md")
Maker: TypeAlias = Callable[[], Iterable[Domain]]


@dataclass(frozen=True)
class Suite:
    """Domains under one name, in the order of tables."""

    name: str
    domains: tuple[Domain, ...]

    def __iter__(self) -> Iterator[Domain]:
        return iter(self.domains)

    def __len__(self) -> int:
        return len(self.domains)

    def __getitem__(self, name: str) -> Domain:
        for domain in self.domains:
            if domain.name == name:
                return domain
        known = ", ".join(domain.name for domain in self.domains)
        raise DataError(f"the suite {self.name} has no domain {name!r}: choose among {known}")

    def with_role(self, role: Role) -> tuple[Domain, ...]:
        """The domains that play this part."""
        return tuple(domain for domain in self.domains if domain.role == role)


def data_folder() -> Path:
    """Where suites lie: FEWSHIFT_DATA, or `fewshift` in the user's cache folder."""
    own = os.environ.get("FEWSHIFT_DATA")
    return Path(own).expanduser() if own else cache_folder()


def open_suite(
    suite: str | Path | Maker,
    names: Collection[str] | None = None,
    *,
    cached: bool = True,
    track: Track = silent,
) -> Suite:
    """Open a suite, or the named domains of it.

    With `cached`, a domain whose pixels `fewshift data cache` has kept is read from there, provided that its
    tasks are the same to the last bit; a cache of images that were larger than 84 pixels is not.
    """
    found = _find(suite, names, track)
    for name, times in Counter(domain.name for domain in found).items():
        if times > 1:
            raise DataError(f"the suite {found.name} has two domains named {name!r}: rename one of them")
    chosen = found.domains if names is None else tuple(found[name] for name in dict.fromkeys(names))
    return Suite(found.name, with_exact_caches(chosen) if cached else chosen)


def open_folder(root: Path, names: Collection[str] | None = None, *, track: Track = silent) -> Suite:
    """The suite that the folder's `suite.json` lists, or else the converted domains in the folder."""
    if is_own_suite(root / SUITE_FILE):
        return _own(root / SUITE_FILE, names, track)
    return Suite(root.resolve().name, tuple(open_records(root, names, track=track)))


def _own(file: Path, names: Collection[str] | None, track: Track) -> Suite:
    name, domains = open_own_suite(file, names, track)
    return Suite(name, tuple(domains))


def _find(suite: str | Path | Maker, names: Collection[str] | None, track: Track) -> Suite:
    if callable(suite):
        return _made(suite, getattr(suite, "__name__", "suite"))
    if suite == "drawn":
        return Suite("drawn", tuple(drawn_suite()))
    if suite in ("open", "md"):
        folder = data_folder() / suite
        if not folder.is_dir() or (suite == "open" and not (folder / SUITE_FILE).exists()):
            raise DataError(f"the suite {suite} is not in {data_folder()}: {_REMEDY[str(suite)]}")
        return Suite(str(suite), tuple(open_records(folder, names, track=track)))
    path = Path(suite).expanduser()
    if path.is_file():
        return _own(path, names, track)
    if path.is_dir():
        return open_folder(path, names, track=track)
    if ":" in str(suite):
        return _made(imported(str(suite), "the suite"), str(suite))
    raise DataError(
        f"there is no suite, folder or file {str(suite)!r}: name one of {', '.join(NAMED)}, or give a folder "
        "of converted domains, a suite's .json file, or package.module:function"
    )


_REMEDY = {
    "open": "run `fewshift data fetch` once, or name the suite `drawn`, which needs no download",
    "md": "give the path of your converted Meta-Dataset instead, or put a link named `md` to it there",
}


def _made(maker: Maker, name: str) -> Suite:
    """The suite that a function returns, or the domains it returns under the function's name."""
    made = maker()
    if isinstance(made, Suite):
        return made
    domains: tuple[Any, ...] = tuple(made) if isinstance(made, Iterable) else (made,)
    if not domains or not all(isinstance(domain, Domain) for domain in domains):
        raise DataError(
            f"{name} did not return domains: a function that makes a suite returns a list of Domain"
        )
    return Suite(name, domains)


def imported(text: str, what: str) -> Any:
    """The function that package.module:function names; `what` says in an error what it was to be."""
    module, _, function = text.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError, TypeError, ValueError) as problem:
        raise DataError(
            f"{what} {text!r} cannot be imported ({problem}): install its package, or set PYTHONPATH to the "
            "folder of its file (PYTHONPATH=. for this)"
        ) from problem
    if not callable(found):
        raise DataError(f"{what} {text!r} is no function: give package.module:function")
    return found
