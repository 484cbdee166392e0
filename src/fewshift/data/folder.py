"""A folder with one folder of images per class, as a domain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fewshift.data.class_split import ALL_TEST, ClassSplit, check_text, split_spec
from fewshift.data.decoding import READABLE, decode
from fewshift.data.domain import Domain, Item, Pixels, Provenance, Role
from fewshift.errors import DataError

SUFFIXES = {
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"),
    *(".ppm", ".pgm", ".pbm", ".pnm"),
}


@dataclass(frozen=True)
class FolderSource:
    """Image files, by class id; read when asked for."""

    files: tuple[tuple[Path, ...], ...]

    def read(self, items: Sequence[Item]) -> list[Pixels]:
        """The images at these places, turned upright."""
        return [read_image(self.files[class_id][index]) for class_id, index in items]


@dataclass(frozen=True)
class FolderContents:
    """What a folder-a-class tree holds."""

    classes: dict[str, tuple[Path, ...]]  # class name -> its image files by name, classes by name
    ignored: dict[Path, str]  # what is no image of a class -> why


def folder_domain(
    folder: Path,
    name: str | None = None,
    *,
    split: ClassSplit = ALL_TEST,
    role: Role = "unseen",
    provenance: Provenance | None = None,
) -> Domain:
    """The tree as a domain: a class is a folder, its images are the files in it, both by name."""
    name = name or folder.resolve().name
    found = list_folder(folder)
    counts = {c: len(files) for c, files in found.classes.items()}
    check_text(name, str(folder))
    spec = split_spec(name, counts, split, str(folder))
    source = FolderSource(tuple(found.classes[c] for c in spec.class_names))
    return Domain(spec, source, role, provenance or Provenance(origin=folder.name))


def list_folder(folder: Path) -> FolderContents:
    """The classes and image files of the tree, and what else it holds, with the reason why it is left out."""
    if not folder.is_dir():
        what = "a file, not a folder" if folder.exists() else "not there"
        raise DataError(f"{folder}: this is {what}: give a folder that holds a folder of images a class")
    classes: dict[str, tuple[Path, ...]] = {}
    ignored: dict[Path, str] = {}
    for entry in sorted_entries(folder):
        if entry.name.startswith("."):
            ignored[entry] = "its name begins with a dot"
        elif not entry.is_dir():
            ignored[entry] = "a file beside the class folders"
        else:
            files, junk = _images_of(entry)
            classes[entry.name] = files
            ignored |= junk
    if not classes:
        loose = sum(path.suffix.lower() in SUFFIXES for path in ignored)
        have = f"{loose} images and no class folders" if loose else "no class folders"
        raise DataError(
            f"{folder}: there are {have} in it: put the images of each class into a folder of its own"
        )
    return FolderContents(classes, ignored)


def _images_of(folder: Path) -> tuple[tuple[Path, ...], dict[Path, str]]:
    files, ignored = [], {}
    for entry in sorted_entries(folder):
        if entry.name.startswith("."):
            ignored[entry] = "its name begins with a dot"
        elif entry.is_dir():
            ignored[entry] = "a folder inside a class folder"
        elif entry.suffix.lower() not in SUFFIXES:
            ignored[entry] = f"its name is not that of a {READABLE} file"
        elif not entry.is_file():
            ignored[entry] = "a link to nothing, or no ordinary file"
        else:
            files.append(entry)
    return tuple(files), ignored


def sorted_entries(folder: Path) -> list[Path]:
    """What a folder holds, by name."""
    try:
        return sorted(folder.iterdir(), key=lambda path: path.name)
    except OSError as problem:
        raise DataError(
            f"{folder}: the folder cannot be read ({problem.strerror}): check its rights"
        ) from problem


def read_image(path: Path) -> Pixels:
    """An image file as RGB, turned upright."""
    return decode(read_bytes(path), str(path))


def read_bytes(path: Path) -> bytes:
    """A file's content."""
    try:
        return path.read_bytes()
    except OSError as problem:
        remedy = "check its rights" if isinstance(problem, PermissionError) else "check that it is there"
        raise DataError(f"{path}: the file cannot be read ({problem.strerror}): {remedy}") from problem
