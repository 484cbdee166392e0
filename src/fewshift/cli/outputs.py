"""The file that a command writes at its end, and checking before the work that it can be written."""

from __future__ import annotations

from pathlib import Path

from fewshift.data.whole_files import check_place, write_whole
from fewshift.errors import FewshiftError


def make_place(path: Path, option: str, example: str) -> None:
    """Make the folder for a file, and refuse a name that cannot be a file's, before any work is done."""
    if path.is_dir():
        raise FewshiftError(f"{option} {path} is a folder: give the name of a file, such as {example}")
    try:
        path.absolute().parent.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise FewshiftError(
            f"{option} {path} cannot be written ({problem.strerror or problem}): give another place"
        ) from problem
    check_place(path)


def keep_input(path: Path | None, option: str, given: Path | str | None, what: str, example: str) -> None:
    """Refuse to write over a file that the command was given to read."""
    if path is None or given is None:
        return
    if path.exists() and Path(given).exists() and path.samefile(given):
        raise FewshiftError(f"{option} {path} is the {what} itself: give another name, such as {example}")


def keep_others(path: Path, option: str, begins: bytes, what: str, example: str) -> None:
    """Refuse to write over a file that is no older output, which begins with these bytes."""
    if path.is_file():
        with path.open("rb") as file:
            head = file.read(len(begins))
        if head not in (b"", begins):
            raise FewshiftError(
                f"{option} {path} is there and is not {what}: give another name, such as {example}"
            )


def keep_images(path: Path, option: str, folder: Path, example: str) -> None:
    """Refuse to write over an image of the folder that the command was given."""
    from fewshift.data.folder import SUFFIXES

    if path.is_file() and path.suffix.lower() in SUFFIXES and folder.resolve() in path.resolve().parents:
        raise FewshiftError(f"{option} {path} is an image of {folder}: give another name, such as {example}")


def write_text(path: Path, text: str, option: str) -> None:
    """Write the file whole; what the disk refuses is a sentence that names the option."""
    try:
        write_whole(path, text.encode("utf-8", "backslashreplace"))
    except OSError as problem:
        raise FewshiftError(
            f"{path}: cannot be written ({problem.strerror}): give another {option}"
        ) from None
