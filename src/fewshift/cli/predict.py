"""`fewshift predict`: images to class names with probabilities, as a table, JSON lines or CSV."""

from __future__ import annotations

import csv
import glob
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fewshift.cli.any_text import print_any_text, printable, read_any_names
from fewshift.cli.console import bars
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
    from fewshift.errors import FewshiftError
    from fewshift.estimator.predictions import Prediction, predictions
    from fewshift.estimator.saved import load

    if json_lines and csv_rows:
        raise FewshiftError("--json and --csv are both given: choose one")
    print_any_text("utf-8" if json_lines or csv_rows else None)
    loaded = load(classifier, kit, device=device)
    top = min(top, len(loaded.classes_))
    named = [_named(text) for text in images]
    items = [path for paths, _ in named for path in paths]
    wrong = [problem for _, problem in named if problem]
    if not items:
        raise FewshiftError(
            wrong[0] if wrong else "standard input names no images: give one file name a line"
        )
    for problem in wrong:
        typer.echo(f"fewshift: {problem}", err=True)
    if not quiet:
        _say_passed_over([text for text, (_, problem) in zip(images, named, strict=True) if not problem])
    problems = len(wrong)
    show = _Json() if json_lines else _Csv(top) if csv_rows else _Table(top)
    try:
        for found in predictions(loaded, items, bars(quiet)):
            if isinstance(found, Prediction):
                show.row(found, top)
            else:
                problems += 1
                typer.echo(f"fewshift: {found.problem}", err=True)
    finally:  # also when interrupted: what was answered is not lost
        show.finish()
    if problems:
        raise typer.Exit(2)


def _say_passed_over(images: Sequence[str]) -> None:
    """Name what lies in the folders and is not taken for an image."""
    from fewshift.data.decoding import READABLE
    from fewshift.estimator.inputs import passed_over

    left = [path for text in images if os.path.isdir(text) for path in passed_over(Path(text))]
    if left:
        more = f" ({len(left)} in all)" if len(left) > 1 else ""
        why = f"its name is not that of a {READABLE} file" if left[0].is_file() else "it is no ordinary file"
        typer.echo(f"fewshift: left out {left[0]}: {why}{more}", err=True)


def _named(text: str) -> tuple[list[Path], str]:
    """The image files that one word on the command line stands for, and what is wrong with it."""
    from fewshift.errors import DataError

    try:
        return list(_files(text)), ""
    except DataError as problem:
        return [], str(problem)


def _files(text: str) -> Iterator[Path]:
    """The same files, or an error."""
    from fewshift.errors import DataError
    from fewshift.estimator.inputs import items_of

    if text == "-":
        read_any_names()
        for line in sys.stdin:
            if line.strip():
                yield Path(line.rstrip("\r\n"))
        return
    matches = [text] if os.path.exists(text) else sorted(glob.glob(text, recursive=True))
    if not matches:
        what = "no file matches the pattern" if glob.has_magic(text) else "there is no file or folder"
        raise DataError(f"{what} {text}: give image files or folders")
    for match in matches:
        yield from items_of(match)


class _Json:
    """One object per line, at once."""

    def row(self, found: Prediction, top: int) -> None:
        from fewshift.estimator.label_json import to_json

        ranked = [{"class": to_json(label), "probability": round(p, 6)} for label, p in found.ranked[:top]]
        line: dict[str, Any] = {"image": printable(found.name), **ranked[0]}
        line |= {"unknown_score": round(found.unknown_score, 6), "unknown": found.unknown, "top": ranked}
        print(json.dumps(line, ensure_ascii=False), flush=True)

    def finish(self) -> None:
        pass


class _Csv:
    """A heading and one row per image, at once."""

    def __init__(self, top: int) -> None:
        more = [f"{name}_{place}" for place in range(2, top + 1) for name in ("class", "probability")]
        self.writer = csv.writer(sys.stdout, lineterminator="\n")
        self.writer.writerow(["image", "class", "probability", "unknown_score", "unknown", *more])

    def row(self, found: Prediction, top: int) -> None:
        cells = [(str(label), f"{p:.6f}") for label, p in found.ranked[:top]]
        score = f"{found.unknown_score:.6f}"
        more = [cell for pair in cells[1:] for cell in pair]
        self.writer.writerow(
            [printable(found.name), *cells[0], score, "yes" if found.unknown else "no", *more]
        )

    def finish(self) -> None:
        sys.stdout.flush()


class _Table:
    """For people, when all is done."""

    def __init__(self, top: int) -> None:
        self.rows: list[Sequence[str]] = []
        self.top = top

    def row(self, found: Prediction, top: int) -> None:
        best, *others = found.ranked[:top]
        more = ", ".join(f"{label} {p:.1%}" for label, p in others)
        unlike = f"{found.unknown_score:.2f}" + (" unlike all classes" if found.unknown else "")
        self.rows.append([printable(found.name), str(best[0]), f"{best[1]:.1%}", unlike, more])

    def finish(self) -> None:
        from fewshift.cli.tables import add_row, plain_table, print_table

        headings = ["image", "class", "probability", "unknown score", *(["then"] if self.top > 1 else [])]
        table = plain_table(headings, right=("probability",), fold=("image", "class", "then"))
        for row in self.rows:
            add_row(table, *row[: len(headings)])
        if self.rows:
            print_table(table)
