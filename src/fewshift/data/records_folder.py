"""Open a folder of converted domains: `<root>/<domain>/<class id>.tfrecords` and `dataset_spec.json`."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from fewshift.data.domain import Domain, Provenance
from fewshift.data.records import RecordSource
from fewshift.data.spec_json import LEGACY_FILE, SPEC_FILE, read_spec
from fewshift.data.suite_file import SuiteEntry, read_provenance, read_suite
from fewshift.errors import DataError
from fewshift.progress import Track, silent


def open_domain(
    folder: Path, entry: SuiteEntry | None = None, *, prepare: bool = True, track: Track = silent
) -> Domain:
    """The domain in this folder; its role and origin come from `entry`, else from the suite around it.

    The first time, all records are read once and checked; `prepare=False` puts that off to the first image.
    """
    spec = read_spec(folder)
    entry = entry or _suite_around(folder).get(spec.name) or SuiteEntry("unseen")
    known = entry.provenance != Provenance()
    source = RecordSource(folder, spec)
    if prepare:
        source.prepare(track)
    return Domain(spec, source, entry.role, entry.provenance if known else read_provenance(folder))


def open_records(
    root: Path, names: Collection[str] | None = None, *, prepare: bool = True, track: Track = silent
) -> list[Domain]:
    """The domains below this folder, or those named, in the order of `suite.json` or of Meta-Dataset."""
    folders: dict[str, Path] = {}
    for folder in domain_folders(root):
        name = read_spec(folder).name
        if name in folders:
            raise DataError(
                f"{folder}: {folders[name]} is named {name!r} too: rename one of them in its spec"
            )
        folders[name] = folder
    if missing := sorted(set(names or ()) - folders.keys()):
        raise DataError(f"{root}: it has no domain {missing[0]!r}, only {', '.join(sorted(folders))}")
    suite = _suite_around(root) if list(folders.values()) == [root] else read_suite(root)
    order = [*(name for name in suite if name in folders), *sorted(folders.keys() - suite.keys())]
    return [
        open_domain(folders[name], suite.get(name, SuiteEntry("unseen")), prepare=prepare, track=track)
        for name in order
        if names is None or name in names
    ]


def _suite_around(folder: Path) -> dict[str, SuiteEntry]:
    return read_suite(Path(os.path.abspath(folder)).parent)  # the parent of `.` is `.`; links stay links


def domain_folders(root: Path) -> list[Path]:
    """The folders that hold a spec: this one itself, or those below it by name."""
    if not root.is_dir():
        what = "this is a file" if root.exists() else "there is no such folder"
        raise DataError(f"{root}: {what}: give the one that holds one folder a domain")
    if (root / SPEC_FILE).exists() or (root / LEGACY_FILE).exists():
        return [root]
    found = sorted({path.parent for name in (SPEC_FILE, LEGACY_FILE) for path in root.glob(f"*/{name}")})
    if not found:
        raise DataError(
            f"{root}: neither it nor a folder in it holds a {SPEC_FILE}: give a folder of converted domains"
        )
    return found
