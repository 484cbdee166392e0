"""`fewshift data inspect`: what a records folder holds, against its spec and against the official one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fewshift.cli.console import bars, print_json, print_table
from fewshift.cli.options import JsonOption, QuietOption, RecordsArgument

if TYPE_CHECKING:
    from fewshift.data.inspect import DomainReport

_SHOWN = 20  # findings per domain; the rest is counted


def inspect(
    folder: RecordsArgument,
    sheet: Annotated[
        Path | None, typer.Option(help="Write a contact sheet of the images to this PNG file.")
    ] = None,
    decode: Annotated[bool, typer.Option("--decode", help="Decode every image as well.")] = False,
    fast: Annotated[
        bool, typer.Option("--fast", help="Follow record lengths only, check no checksum.")
    ] = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Compare a records folder with its specs: missing files, wrong counts, bad checksums, wrong labels.

    Every fault is named with its file and the byte at which the record starts. Exit code 1 when there is one.

    Example: `fewshift data inspect ~/records --decode --sheet sheet.png`
    """
    from fewshift.cli.outputs import keep_others
    from fewshift.data.inspect import inspect_records

    root = records_root(folder)
    if sheet is not None:
        keep_others(sheet, "--sheet", b"\x89PNG", "a PNG picture", "sheet.png")
    reports = inspect_records(root, verify_crc=not fast, decode=decode, track=bars(quiet))
    if as_json:
        print_json([_as_json(report) for report in reports])
    else:
        _print_table(reports)
        _print_findings(reports)
    if sheet is not None:
        _write_sheet(root, sheet, {report.name for report in reports if report.whole})
        typer.echo(f"wrote {sheet}", err=True)
    if not all(report.whole for report in reports):
        raise typer.Exit(1)


def records_root(folder: str) -> Path:
    """A path, or a named suite's folder in the data folder."""
    from fewshift.data.suites import data_folder
    from fewshift.errors import FewshiftError

    path = Path(folder).expanduser()
    if not path.exists() and folder in ("open", "md"):
        path = data_folder() / folder
        if not path.is_dir():
            way = "run `fewshift data fetch` first" if folder == "open" else "give the path of your records"
            raise FewshiftError(f"the suite {folder} is not in {data_folder()}: {way}")
    return path


def _write_sheet(root: Path, sheet: Path, whole: set[str]) -> None:
    from fewshift.data.contact_sheet import class_sheet, contact_sheet
    from fewshift.data.records_folder import open_records
    from fewshift.errors import FewshiftError

    if not whole:
        raise FewshiftError(
            f"{sheet}: no domain is whole, so there is nothing to show: mend the faults first"
        )
    domains = open_records(root, whole)
    if len(domains) == 1:
        class_sheet(domains[0], sheet)
    else:
        contact_sheet(domains, sheet)


def _print_table(reports: list[DomainReport]) -> None:
    from fewshift.types import SPLITS

    rows = []
    for report in reports:
        spec, faults = report.spec, [f for f in report.findings if f.severity == "error"]
        rows.append(
            (
                report.name,
                spec.kind if spec else "",
                "/".join(str(len(spec.splits[split])) for split in SPLITS) if spec else "",
                f"{report.images:,}",
                f"{report.size / 1e6:.1f}",
                "whole" if report.whole else f"{len(faults)} fault{'s' if len(faults) != 1 else ''}",
                {None: "", True: "equal", False: "another"}[report.official],
            )
        )
    counts = "train/valid/test"
    headings = ("domain", "kind", counts, "images", "MB", "state", "official")
    print_table(headings, rows, right=(counts, "images", "MB"))


def _print_findings(reports: list[DomainReport]) -> None:
    for report in reports:
        for finding in report.findings[:_SHOWN]:
            at = f" (byte {finding.offset:,})" if finding.offset is not None else ""
            typer.echo(f"{finding.severity}: {finding.sentence}{at}")
        if len(report.findings) > _SHOWN:
            typer.echo(f"{report.name}: and {len(report.findings) - _SHOWN} more; --json prints all")


def _as_json(report: DomainReport) -> dict[str, Any]:
    from fewshift.types import SPLITS

    spec = report.spec
    return {
        "domain": report.name,
        "folder": str(report.folder),
        "kind": spec.kind if spec else None,
        "classes": {split: len(spec.splits[split]) for split in SPLITS} if spec else None,
        "images": report.images,
        "bytes": report.size,
        "whole": report.whole,
        "official": report.official,
        "findings": [
            {
                "severity": finding.severity,
                "kind": finding.kind,
                "file": str(finding.where),
                "offset": finding.offset,
                "text": finding.text,
            }
            for finding in report.findings
        ],
    }
