"""What a records folder really holds, against its own spec and against the official one of the same name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from fewshift.data.index_cache import REMEDY, class_file
from fewshift.data.inspect_images import undecodable
from fewshift.data.official import official_spec
from fewshift.data.records_folder import domain_folders
from fewshift.data.scan import scan_files
from fewshift.data.scan_window import ClassFile, Scan
from fewshift.data.spec import Spec
from fewshift.data.spec_json import SPEC_FILE, read_spec, repeated_names
from fewshift.data.suite_file import SUITE_FILE, lists_its_folder, read_suite
from fewshift.errors import DataError
from fewshift.progress import Track, silent
from fewshift.types import SPLITS

Severity: TypeAlias = Literal["error", "warning", "note"]
Kind: TypeAlias = Literal[
    "spec",  # the spec is missing or contradicts itself
    "name",  # folder and spec have different names
    "duplicate name",  # two classes with one name
    "few images",  # a class too small for a task
    "missing folder",
    "missing file",
    "extra file",
    "unreadable",  # no right to read it, or a bad disk
    "count",  # records and spec disagree
    "length",  # a record's length is damaged
    "checksum",  # a record's content is damaged
    "truncated",  # the file ends inside a record
    "content",  # no image with a label
    "label",  # the label of another class
    "image",  # cannot be decoded
    "official",  # another dataset than the official one of this name
]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that somebody should know. Errors make a domain unusable, notes are harmless."""

    severity: Severity
    kind: Kind
    where: Path
    text: str
    offset: int | None = None  # byte of the file at which the record starts

    @property
    def sentence(self) -> str:
        """All of it in one line."""
        return f"{self.where}: {self.text}"


@dataclass(frozen=True)
class DomainReport:
    """What was found in the folder of one domain."""

    name: str
    folder: Path
    spec: Spec | None  # None: it cannot be read
    images: int = 0  # whole records
    size: int = 0  # bytes
    findings: tuple[Finding, ...] = ()
    official: bool | None = None  # does its spec equal the official one of this name? None: there is none

    @property
    def whole(self) -> bool:
        """No errors."""
        return not any(finding.severity == "error" for finding in self.findings)


def inspect_records(
    root: Path, *, verify_crc: bool = True, decode: bool = False, track: Track = silent
) -> list[DomainReport]:
    """Inspect the domain in this folder, or all below it; never stops at the first error and changes nothing.

    `verify_crc` reads all records and checks checksums and labels, otherwise only their lengths are followed.
    `decode` also decodes every image.
    """
    folders = sorted((_name(folder), folder) for folder in domain_folders(root))
    expected = list(read_suite(root)) if lists_its_folder(root / SUITE_FILE) else []
    names = [name for name, _ in folders]
    missing = [_missing_folder(name, root / name) for name in expected if name not in names]
    folders.sort(key=lambda found: expected.index(found[0]) if found[0] in expected else len(expected))
    return missing + [_inspect_domain(folder, verify_crc, decode, track) for _, folder in folders]


def _missing_folder(name: str, folder: Path) -> DomainReport:
    text = f"{SUITE_FILE} names this domain but its folder is not there: copy it or take the name out"
    return DomainReport(name, folder, None, findings=(Finding("error", "missing folder", folder, text),))


def _inspect_domain(folder: Path, verify_crc: bool, decode: bool, track: Track) -> DomainReport:
    try:
        spec = read_spec(folder, unique_names=False)
    except DataError as problem:
        text = str(problem).removeprefix(f"{folder / SPEC_FILE}: ")
        finding = Finding("error", "spec", folder / SPEC_FILE, text)
        return DomainReport(_name(folder), folder, None, findings=(finding,))
    files = [class_file(folder, class_id) for class_id in range(spec.classes)]
    present = [file for file in files if file.path.is_file()]
    scans, unreadable = _scanned(present, verify_crc, track, f"checking {spec.name}")
    findings = [
        *_about_spec(folder, spec),
        *_about_files(folder, spec, files, present),
        *unreadable,
        *(finding for scan in scans for finding in _about_records(scan, spec)),
    ]
    if decode:
        findings += [
            Finding("error", "image", scan.file.path, text, int(scan.bounds[record]))
            for scan, record, text in undecodable(scans, track)
        ]
    official = official_spec(spec.name)
    same = None if official is None else spec == official
    if official is not None and not same:
        findings.append(Finding("note", "official", folder / SPEC_FILE, _difference(spec, official)))
    images, size = sum(scan.records for scan in scans), sum(scan.size for scan in scans)
    return DomainReport(spec.name, folder, spec, images, size, tuple(findings), same)


def _scanned(
    files: Sequence[ClassFile], check: bool, track: Track, label: str
) -> tuple[list[Scan], list[Finding]]:
    """What the files hold, by class id, and those that cannot be read."""
    try:
        found = scan_files(files, check=check, track=track, label=label)
        return sorted(found, key=lambda scan: scan.file.class_id), []
    except DataError as problem:
        if len(files) == 1:
            text = str(problem).removeprefix(f"{files[0].path}: ")
            return [], [Finding("error", "unreadable", files[0].path, text)]
    alone = track(files, label=label, total=len(files))  # which it is, and what the others hold
    each = [_scanned([file], check, silent, label) for file in alone]
    return [scan for scans, _ in each for scan in scans], [finding for _, bad in each for finding in bad]


def _name(folder: Path) -> str:
    """What the spec says, or the folder where it says nothing."""
    try:
        return read_spec(folder, unique_names=False).name
    except DataError:
        return folder.resolve().name


def _about_spec(folder: Path, spec: Spec) -> Iterator[Finding]:
    where = folder / SPEC_FILE
    if spec.name != folder.resolve().name:
        text = (
            f"it names the domain {spec.name!r}, its folder is {folder.resolve().name!r}: rename one of them"
        )
        yield Finding("warning", "name", where, text)
    for first, second in repeated_names(spec.class_names):
        text = f"classes {first} and {second} are both named {spec.class_names[first]!r}: rename one of them"
        yield Finding("error", "duplicate name", where, text)
    for class_id, count in enumerate(spec.images_per_class):
        if count < 2:
            text = (
                f"class {class_id} ({spec.class_names[class_id]}) has one image and a task needs two: "
                "add images or leave the class out"
            )
            yield Finding("warning", "few images", where, text)


def _about_files(
    folder: Path, spec: Spec, files: Sequence[ClassFile], present: Sequence[ClassFile]
) -> Iterator[Finding]:
    there = {file.path for file in present}
    for file in files:
        if file.path not in there:
            text = (
                f"the file of class {file.class_id} ({spec.class_names[file.class_id]}) is missing: {REMEDY}"
            )
            yield Finding("error", "missing file", file.path, text)
    for path in sorted(set(folder.glob("*.tfrecords")) - {file.path for file in files}):
        text = f"no class of {SPEC_FILE} belongs to this file: remove it, or copy the spec that came with it"
        yield Finding("warning", "extra file", path, text)


def _about_records(scan: Scan, spec: Spec) -> Iterator[Finding]:
    for fault in scan.faults:
        text = f"{scan.describe(fault)}: {REMEDY}"
        yield Finding("error", fault.kind, scan.file.path, text, scan.offset(fault))
    expected = spec.images_per_class[scan.file.class_id]
    if scan.records != expected:
        text = f"it holds {scan.records} whole records but {SPEC_FILE} says {expected}: {REMEDY}"
        yield Finding("error", "count", scan.file.path, text)


def _difference(spec: Spec, official: Spec) -> str:
    def summary(of: Spec) -> str:
        classes = "/".join(str(len(of.splits[split])) for split in SPLITS)
        return f"{classes} classes and {sum(of.images_per_class):,} images"

    if summary(spec) != summary(official):
        what = f"{summary(spec)}, where Meta-Dataset's own has {summary(official)}"
    else:
        what = "as many classes and images as Meta-Dataset's own, but other counts, names or groups"
    return f"this {spec.name} has {what}: results on it are not Meta-Dataset results"
