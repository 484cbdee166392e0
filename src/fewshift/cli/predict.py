"""`fewshift predict`: images to class names with probabilities, as a table, JSON lines or CSV."""

from __future__ import annotations

import csv
import glob
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fewshift.cli.console import bars, print_any_text, print_table, printable, read_any_names
from fewshift.cli.options import DeviceOption, FittedArgument

if TYPE_CHECKING:
    from fewshift.estimator.predictions import Prediction


def predict(
    classifier: FittedArgument,
    images: Annotated[
        list[str],
        typer.Argument(help="Files, folders, patterns such as 'new/*.jpg'; - reads names from stdin."),
    ],
    json_lines: Annotated[bool, typer.Option("--json", help="One JSON object a line and image.")] = False,
    csv_rows: Annotated[bool, typer.Option("--csv", help="Comma-separated values with a heading.")] = False,
    top: Annotated[int, typer.Option(min=1, help="So many classes an image.")] = 1,
    kit: Annotated[str | None, typer.Option(help="The kit's file, where it is no bundled one.")] = None,
    device: DeviceOption = "auto",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No bars, no word of files left out.")] = False,
) -> None:
    """Say of each image which class it is, how probable that is, and whether it is unlike all classes.

    An image that cannot be read is named on stderr; the others are answered, and the exit code is 2.

    Example: `fewshift predict birds.fewshift new/ --top 3`, or
    `ls new/*.jpg | fewshift predict birds.fewshift - --json`
    """
    from fewshift.errors import DataError, FewshiftError
    from fewshift.estimator.predictions import Unreadable, predictions
    from fewshift.estimator.saved import load

    if json_lines and csv_rows:
        raise FewshiftError("--json and --csv are both given: choose one")
    print_any_text("utf-8" if json_lines or csv_rows else None)
    loaded = load(classifier, kit, device=device)
    top = min(top, len(loaded.classes_))
    items: list[Path] = []
    there, problems = [], []
    for text in images:
        try:
            items += _files(text)
            there.append(text)
        except DataError as problem:  # noqa: PERF203
            problems.append(str(problem))
    if not items:
        nothing = "standard input names no images: give one file name a line"
        raise FewshiftError(problems[0] if problems else nothing)
    for sentence in problems:
        typer.echo(f"fewshift: {sentence}", err=True)
    if not quiet:
        _say_passed_over(there)
    rows = csv.writer(sys.stdout, lineterminator="\n")
    if csv_rows:
        more = [f"{name}_{place}" for place in range(2, top + 1) for name in ("class", "probability")]
        rows.writerow(["image", "class", "probability", "unknown_score", "unknown", *more])
    table: list[list[str]] = []
    try:
        for found in predictions(loaded, items, bars(quiet)):
            if isinstance(found, Unreadable):
                problems.append(found.problem)
                typer.echo(f"fewshift: {found.problem}", err=True)
            elif json_lines:
                print(_json_line(found, top), flush=True)
            elif csv_rows:
                rows.writerow(_csv_row(found, top))
            else:
                table.append(_table_row(found, top))
    finally:  # also when interrupted: what was answered is not lost
        if table:
            headings = ["image", "class", "probability", "unknown score", *(["then"] if top > 1 else [])]
            print_table(headings, table, right=("probability",), fold=("image", "class", "then"))
        sys.stdout.flush()
    if problems:
        raise typer.Exit(2)


def _files(text: str) -> list[Path]:
    """The image files that one word on the command line stands for."""
    from fewshift.errors import DataError
    from fewshift.estimator.inputs import items_of

    if text == "-":
        read_any_names()
        return [Path(line.rstrip("\r\n")) for line in sys.stdin if line.strip()]
    matches = [text] if os.path.exists(text) else sorted(glob.glob(text, recursive=True))
    if not matches:
        what = "no file matches the pattern" if glob.has_magic(text) else "there is no file or folder"
        raise DataError(f"{what} {text}: give image files or folders")
    return [path for match in matches for path in items_of(match)]


def _say_passed_over(images: Sequence[str]) -> None:
    """Name what lies in the folders and is not taken for an image."""
    from fewshift.data.decoding import READABLE
    from fewshift.estimator.inputs import passed_over

    left = [path for text in images if os.path.isdir(text) for path in passed_over(Path(text))]
    if left:
        more = f" ({len(left)} in all)" if len(left) > 1 else ""
        why = f"its name is not that of a {READABLE} file" if left[0].is_file() else "it is no ordinary file"
        typer.echo(f"fewshift: left out {left[0]}: {why}{more}", err=True)


def _json_line(found: Prediction, top: int) -> str:
    from fewshift.estimator.labels import to_json

    ranked = [{"class": to_json(label), "probability": round(p, 6)} for label, p in found.ranked[:top]]
    line: dict[str, Any] = {"image": printable(found.name), **ranked[0]}
    line |= {"unknown_score": round(found.unknown_score, 6), "unknown": found.unknown, "top": ranked}
    return json.dumps(line, ensure_ascii=False)


def _csv_row(found: Prediction, top: int) -> list[str]:
    best, *others = [(str(label), f"{p:.6f}") for label, p in found.ranked[:top]]
    more = [cell for pair in others for cell in pair]
    unknown = "yes" if found.unknown else "no"
    return [printable(found.name), *best, f"{found.unknown_score:.6f}", unknown, *more]


def _table_row(found: Prediction, top: int) -> list[str]:
    (label, sure), *others = found.ranked[:top]
    unlike = f"{found.unknown_score:.2f}" + (" unlike all classes" if found.unknown else "")
    more = [", ".join(f"{other} {p:.1%}" for other, p in others)] if top > 1 else []
    return [printable(found.name), str(label), f"{sure:.1%}", unlike, *more]
