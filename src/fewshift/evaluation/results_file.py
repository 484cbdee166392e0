"""A results file that a killed process can go on with: append-only, one writer, no line twice, none lost.

Each line goes to the kernel in one write, so `kill -9` can at most cut the last line short; opening the file
again cuts such a stump off and the task is run again. A power cut may cost the lines of the last second.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fewshift.data.locks import hold
from fewshift.data.whole_files import refuse_device
from fewshift.errors import DataError
from fewshift.evaluation.scores import Key, Score, from_line, is_whole, to_line

LINE_BEGINS = b'{"method":'
SYNC_EVERY = 1.0  # seconds; fsync on every line would cost more than a quick method takes

# What all lines of one file share. Engine, device and versions may change between a run and its resumption:
# each line has its own.
SHARED = ("split", "seed", "protocol", "pixels", "fingerprint", "revealed")


@dataclass(frozen=True)
class ResultsFile:
    """An open results file: what it held when opened, and how to add to it."""

    path: Path
    done: frozenset[Key]
    engines: Mapping[str, Set[str]]  # method -> who computed the lines of it that were there
    _fd: int
    _synced: list[float]

    def mixed(self, engines: Mapping[str, str]) -> str | None:
        """A sentence where a method's lines were computed otherwise than now, so that numbers may differ."""
        theirs = {name: self.engines.get(name, set()) - {engine} for name, engine in engines.items()}
        found = [name for name, others in theirs.items() if others]
        if not found:
            return None
        before = sorted({engine for name in found for engine in theirs[name]})
        now = dict.fromkeys(engines[name] for name in found)
        return (
            f"{self.path}: lines of {', '.join(found)} that are there were computed by {', '.join(before)}, "
            f"new ones by {', '.join(now)}: if that is not meant, give another --precision, --engine or --out"
        )

    def append(self, score: Score) -> None:
        """Add one line. It survives the death of this process as soon as this returns."""
        data = to_line(score).encode()
        with _room_for(self.path):
            if os.write(self._fd, data) != len(data):
                raise OSError("the line was written in part")
            if time.monotonic() - self._synced[0] > SYNC_EVERY:
                os.fsync(self._fd)
                self._synced[0] = time.monotonic()


@contextmanager
def open_results(
    path: Path, run: Mapping[str, Any], specs: Mapping[str, str] | None = None
) -> Iterator[ResultsFile]:
    """Open a results file for appending, or make it; refuse one that another run wrote.

    `run` holds the values of `SHARED` in this run (a missing one is not compared), `specs` the fingerprint of
    each domain.
    """
    refuse_device(path)
    if path.suffix == ".gz":
        raise DataError(f"{path}: results are written line by line, not compressed: give a name without .gz")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)  # Windows rewrites newlines
        fd = os.open(path, flags, 0o644)
    except OSError as problem:
        raise DataError(
            f"{path}: cannot be opened for results ({problem.strerror}): give another --out"
        ) from None
    try:
        hold(
            fd,
            f"{path}: another process is writing to this file; wait for it, or give each shard its own --out",
        )
        text, stump = _whole_lines(fd, path)
        done: set[Key] = set()
        engines: dict[str, set[str]] = {}
        for number, line in enumerate(text.split("\n"), 1):
            if not line.strip():
                continue
            score = from_line(line, f"{path}:{number}")
            _refuse_another_run(score, f"{path}:{number}", run, specs or {})
            if score.key in done:
                what = f"{score.method} on {score.domain} {score.split} task {score.index}"
                raise DataError(f"{path}:{number}: {what} is in the file twice; remove one line")
            done.add(score.key)
            if score.engine is not None:
                engines.setdefault(score.method, set()).add(score.engine)
        with _room_for(path):
            if stump:
                os.ftruncate(fd, os.fstat(fd).st_size - stump)
            elif text and not text.endswith("\n"):  # an editor took the newline away
                os.write(fd, b"\n")
        yield ResultsFile(path, frozenset(done), engines, fd, [time.monotonic()])
        with _room_for(path):
            os.fsync(fd)
    finally:
        os.close(fd)  # frees the lock too


@contextmanager
def _room_for(path: Path) -> Iterator[None]:
    """What the disk refuses, as a sentence."""
    try:
        yield
    except OSError as problem:
        raise DataError(
            f"{path}: cannot be written ({problem}); make room and give the same command again"
        ) from None


def _whole_lines(fd: int, path: Path) -> tuple[str, int]:
    """The complete lines of the file, and how many bytes of a line cut short follow them.

    Nothing is cut off here: a file that is no results file has to stay as it is.
    """
    with open(os.dup(fd), "rb") as file:  # which reads on where the kernel gives 2 GiB at most at a time
        file.seek(0)
        data = file.read(os.fstat(fd).st_size)
    stump = len(data) - data.rfind(b"\n") - 1
    try:
        if stump and _is_torn(data[-stump:]):
            return data[:-stump].decode(), stump
        return data.decode(), 0
    except UnicodeDecodeError as problem:
        raise DataError(f"{path}: not a results file ({problem.reason}): give another --out") from None


def _is_torn(tail: bytes) -> bool:
    """Whether this is the beginning of a score's line and not the whole of it."""
    begins = tail.startswith(LINE_BEGINS) or LINE_BEGINS.startswith(tail)
    return begins and not is_whole(tail.decode(errors="replace"))


def _refuse_another_run(score: Score, where: str, run: Mapping[str, Any], specs: Mapping[str, str]) -> None:
    for name in SHARED:
        theirs = getattr(score, name)
        if name in run and theirs != run[name]:
            raise DataError(
                f"{where}: this file belongs to another run ({name} {theirs} there, {run[name]} here); "
                "give another --out"
            )
    if score.domain in specs and score.spec != specs[score.domain]:
        raise DataError(
            f"{where}: {score.domain} held other classes or images then (spec {score.spec}, now "
            f"{specs[score.domain]}), so its tasks differ; give another --out"
        )
