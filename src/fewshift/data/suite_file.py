"""`suite.json`: the role of each domain of a records folder, and where its images come from.

A JSON object: domain name -> {"role": "seen" | "valid_unseen" | "unseen", "origin": .., "licence": ..,
"attribution": ..}, in the order of tables; only the role is needed, and further keys are left alone. Without
the file, Meta-Dataset's own names have Meta-Dataset's roles. A domain outside a suite may say where it comes
from in a `provenance.json` of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fewshift.data.domain import Provenance, Role
from fewshift.data.official import ORDER, SEEN
from fewshift.data.spec_fields import Fields, read_fields, show
from fewshift.data.whole_files import write_whole

SUITE_FILE = "suite.json"
PROVENANCE_FILE = "provenance.json"
ROLES: tuple[Role, ...] = ("seen", "valid_unseen", "unseen")
UNKNOWN = Provenance()
_KEYS = {  # ours first, then what else such files say
    "origin": ("origin", "original_dataset", "source"),
    "licence": ("licence", "license", "license_as_stated"),
    "attribution": ("attribution", "citation"),
}


@dataclass(frozen=True)
class SuiteEntry:
    """What a suite says of one of its domains."""

    role: Role
    provenance: Provenance = UNKNOWN


def read_suite(root: Path) -> dict[str, SuiteEntry]:
    """The entries of this folder's `suite.json`; Meta-Dataset's own if there is none."""
    if not lists_its_folder(root / SUITE_FILE):
        return {name: SuiteEntry("seen" if name in SEEN else "unseen") for name in ORDER}
    fields = read_fields(root / SUITE_FILE, "copy the file again")
    return {name: _entry(fields, name) for name in fields.values}


def lists_its_folder(file: Path) -> bool:
    """Does this `suite.json` say something of the domains beside it? One of `own_suite` does not."""
    return file.exists() and not is_own_suite(file)


def is_own_suite(file: Path) -> bool:
    """Does this file list domains wherever they lie (`fewshift.data.own_suite`)?"""
    if not file.is_file():
        return False
    values = read_fields(file, "write it anew").values
    return set(values) == {"name", "domains"} and isinstance(values["name"], str)


def read_provenance(folder: Path) -> Provenance:
    """What this domain's own `provenance.json` says."""
    if not (folder / PROVENANCE_FILE).exists():
        return UNKNOWN
    fields = read_fields(folder / PROVENANCE_FILE, "copy the file again")
    return _provenance(fields, "the domain", fields.values)


def write_provenance(folder: Path, provenance: Provenance) -> None:
    """Keep it beside the domain's records."""
    content = json.dumps(asdict(provenance), indent=1, ensure_ascii=False)
    write_whole(folder / PROVENANCE_FILE, content.encode())


def write_suite(root: Path, entries: Mapping[str, SuiteEntry]) -> None:
    """Write the roles and origins of these domains, in this order, in place of what the file said before."""
    content = {name: {"role": entry.role, **asdict(entry.provenance)} for name, entry in entries.items()}
    write_whole(root / SUITE_FILE, json.dumps(content, indent=1, ensure_ascii=False).encode())


def _entry(fields: Fields, name: str) -> SuiteEntry:
    values = fields.object(name)
    role = values.get("role")
    if role not in ROLES:
        fields.refuse(f"the role of {name} is {show(role)}: it must be one of {', '.join(ROLES)}")
    return SuiteEntry(role, _provenance(fields, name, values))


def _provenance(fields: Fields, name: str, values: Mapping[str, Any]) -> Provenance:
    known = {key: _text(fields, name, values, names) for key, names in _KEYS.items()}
    return Provenance(**{key: text for key, text in known.items() if text})


def _text(fields: Fields, name: str, values: Mapping[str, Any], keys: tuple[str, ...]) -> str:
    for key in keys:
        if key in values:
            if not isinstance(values[key], str):
                fields.refuse(f"{key} of {name} is {show(values[key])}: it must be a text")
            return str(values[key])
    return ""
