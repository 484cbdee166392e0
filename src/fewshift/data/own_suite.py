"""A user's own suite in one small file.

    {"name": "garden",
     "domains": {
       "birds":   {"records": "converted/birds", "role": "seen", "licence": "CC-BY-4.0"},
       "insects": {"folder": "photos/insects", "role": "seen", "split": {"train": 0.8, "test": 0.2}},
       "weeds":   {"folder": "photos/weeds", "role": "unseen"}}}

`records` is a folder of one converted domain, `folder` one with a folder of images per class; paths start at
the file. `split` gives shares (and a `seed`) or lists of class names, or names a file with such lists;
without it classes of a seen domain are split 70/15/15 and those of other domains are all for testing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fewshift.data.class_split import ALL_TEST, ClassSplit, DrawnSplit, did_you_mean, read_split
from fewshift.data.domain import Domain, Provenance, Role
from fewshift.data.folder import folder_domain
from fewshift.data.records_folder import open_domain
from fewshift.data.spec_fields import Fields, read_fields, show
from fewshift.data.suite_file import ROLES, SuiteEntry
from fewshift.errors import DataError
from fewshift.progress import Track, silent
from fewshift.types import SPLITS

_TEXTS = ("origin", "licence", "attribution")
_KEYS = ("records", "folder", "role", "split", *_TEXTS)


def open_own_suite(
    file: Path, names: Collection[str] | None = None, track: Track = silent
) -> tuple[str, list[Domain]]:
    """The suite's name and its domains, or those named."""
    fields = read_fields(file, "write it anew")
    if unknown := sorted(set(fields.values) - {"name", "domains"}):
        fields.refuse(f"the key {show(unknown[0])} is not known: a suite has `name` and `domains`")
    name = fields.text(fields.values.get("name", file.stem), "the name of the suite")
    listed = fields.object("domains")
    if not listed:
        fields.refuse('it lists no domain: add "birds": {"folder": "photos/birds", "role": "seen"}')
    for wanted in names or ():
        if wanted not in listed:
            fields.refuse(f"it has no domain {wanted!r}, only {', '.join(listed)}")
    return name, [
        _open(fields, file.parent, fields.domain_name(domain, "the name of a domain"), values, track)
        for domain, values in listed.items()
        if names is None or domain in names
    ]


def _open(fields: Fields, base: Path, name: str, values: Any, track: Track) -> Domain:
    if not isinstance(values, dict):
        fields.refuse(f"{name} is {show(values)}: it must be a JSON object with `records` or `folder`")
    for key in values:
        if key not in _KEYS:
            fields.refuse(f"{name} has the unknown key {show(key)}{did_you_mean(key, _KEYS)}")
    if ("records" in values) == ("folder" in values):
        fields.refuse(f"{name} must have either `records` or `folder`, which say where its images are")
    role: Role = values.get("role", "unseen")
    if role not in ROLES:
        fields.refuse(f"the role of {name} is {show(role)}: it must be one of {', '.join(ROLES)}")
    texts = {key: fields.text(values[key], f"{key} of {name}") for key in _TEXTS if key in values}
    kind = "records" if "records" in values else "folder"
    path = base / Path(fields.text(values[kind], f"{kind} of {name}")).expanduser()
    if not path.is_dir():
        fields.refuse(f"{kind} of {name} is {path}, which is no folder: correct the path in the file")
    if kind == "records":
        if "split" in values:
            fields.refuse(f"{name} has a `split`, but records bring their own: remove it")
        domain = open_domain(path, SuiteEntry(role, Provenance(**texts)), track=track)
        return replace(domain, spec=replace(domain.spec, name=name))
    split: ClassSplit = DrawnSplit() if role == "seen" else ALL_TEST
    if "split" in values:
        split = _split(fields, base, name, values["split"])
    provenance = Provenance(**{"origin": path.name, **texts})
    return folder_domain(path, name, split=split, role=role, provenance=provenance)


def _split(fields: Fields, base: Path, name: str, value: Any) -> ClassSplit:
    if isinstance(value, str):
        return read_split(base / value)
    remedy = 'give {"train": 0.7, "valid": 0.15, "test": 0.15, "seed": 0}, lists of class names, or a file'
    if not isinstance(value, dict) or not value or set(value) - {*SPLITS, "seed"}:
        fields.refuse(f"the split of {name} is {show(value)}: {remedy}")
    if all(isinstance(part, list) and all(isinstance(c, str) for c in part) for part in value.values()):
        return value
    return _shares(fields, name, value, remedy)


def _shares(fields: Fields, name: str, value: Mapping[str, Any], remedy: str) -> DrawnSplit:
    seed = value.get("seed", 0)
    shares = [value.get(split, 0.0) for split in SPLITS]
    numbers = all(isinstance(s, int | float) and not isinstance(s, bool) for s in shares)
    if not numbers or isinstance(seed, bool) or not isinstance(seed, int):
        fields.refuse(f"the split of {name} has something else than numbers: {remedy}")
    try:
        train, valid, test = (float(share) for share in shares)
        return DrawnSplit(train, valid, test, seed)
    except DataError as problem:
        raise DataError(f"{fields.where}: {name}: {problem}") from problem
