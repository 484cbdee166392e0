"""What `fewshift doctor FOLDER` says of the folder."""

from __future__ import annotations

import shlex
from itertools import chain, zip_longest
from pathlib import Path

from fewshift.cli.doctor_checks import Check, line

OPENED = 100  # images, of all classes in turn: photographs of a telephone take 0.15 s each


def check_folder(folder: Path) -> list[Check]:
    """One line per domain of a records folder, or what a folder-a-class tree holds."""
    from fewshift.data.records_folder import domain_folders
    from fewshift.errors import DataError

    folder = folder.expanduser()
    try:
        domain_folders(folder)
    except DataError:
        if not folder.is_dir():
            raise
        return [_class_folders(folder)]
    return _records(folder)


def _records(folder: Path) -> list[Check]:
    from fewshift.data.inspect import inspect_records
    from fewshift.types import SPLITS

    checks = []
    for report in inspect_records(folder, verify_crc=False):
        faults = [finding for finding in report.findings if finding.severity == "error"]
        if report.spec is not None:
            counts = "/".join(str(len(report.spec.splits[split])) for split in SPLITS)
            found = (
                f"{counts} classes (train/valid/test), {report.images:,} images, {report.size / 1e6:.1f} MB"
            )
        else:
            found = "its spec cannot be read"
        remedy = ""
        if faults:
            found += f"; {len(faults)} faults, the first: {faults[0].text}"
            remedy = f"fewshift data inspect {shlex.quote(str(folder))}"
        checks.append(line("folder", report.name, found, remedy, "broken"))
    return checks


def _class_folders(folder: Path) -> Check:
    from fewshift.data.class_split import check_names
    from fewshift.data.folder import list_folder
    from fewshift.errors import DataError

    def broken(found: str, remedy: str, what: str = "images") -> Check:
        return line("folder", what, found, remedy, "broken")

    try:
        found = list_folder(folder)
    except DataError as problem:
        remedy = "give a folder that holds a folder a class, or one of converted domains"
        return broken(str(problem), remedy, "contents")
    try:
        check_names(list(found.classes), str(folder))
    except DataError as problem:
        return broken(str(problem), "rename that folder")
    counts = sorted(len(files) for files in found.classes.values())
    each = f"{counts[0]}" if counts[0] == counts[-1] else f"{counts[0]} to {counts[-1]}"
    text = f"{len(counts)} class{'es' if len(counts) > 1 else ''} of {each} images, {sum(counts):,} in all"
    if found.ignored:
        text += f"; {len(found.ignored)} other files are ignored"
    if len(counts) < 2:
        return broken(f"{text}; one class alone is no choice", "add a class")
    name = next(name for name, files in found.classes.items() if len(files) == counts[0])
    if counts[0] == 0:
        return broken(f"{text}; class {name} has none", "add images or remove it")
    in_turn = chain.from_iterable(zip_longest(*found.classes.values()))
    files = [file for file in in_turn if file is not None]
    fault = next(filter(None, map(_problem, files[:OPENED])), None)
    if fault:
        return broken(f"{text}; {fault}", "mend or remove that file")
    if len(files) > OPENED:
        text += f"; {OPENED} of them were opened"
    quoted, out = shlex.quote(str(folder)), shlex.quote(f"{folder.resolve().name or 'images'}.fewshift")
    use = f"fewshift fit {quoted} -o {out}"
    if counts[0] == 1:
        text += f"; class {name} has one: enough for fit, while evaluate and data convert need two"
    else:
        use += f", or fewshift data convert {quoted} TARGET"
    return Check("folder", "images", "ok", text, use)


def _problem(file: Path) -> str | None:
    """What is wrong with an image."""
    from fewshift.data.folder import read_image
    from fewshift.errors import DataError

    try:
        read_image(file)
    except DataError as problem:
        return str(problem)
    return None
