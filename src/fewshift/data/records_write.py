"""Write a domain in the records layout, so that an interrupted run goes on where it stopped.

Each class file is there whole or not at all, and `dataset_spec.json` comes last: a folder that has it is
complete. Until then the spec waits under another name, so that a second run can tell whether it writes the
same domain; two conversions with different class orders must never share a folder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fewshift.data.domain import Provenance
from fewshift.data.example import encode_example
from fewshift.data.index_cache import class_file
from fewshift.data.locks import hold
from fewshift.data.scan import scan_files
from fewshift.data.spec import Spec
from fewshift.data.spec_json import SPEC_FILE, read_spec, spec_text, write_spec
from fewshift.data.suite_file import read_provenance, write_provenance
from fewshift.data.tfrecord import MAX_RECORD, frame
from fewshift.data.whole_files import whole_file
from fewshift.errors import DataError
from fewshift.progress import Track, silent

UNFINISHED_FILE = "dataset_spec.unfinished.json"
_LOCK_FILE = ".writing"
_BATCH_BYTES = 4 * 2**20


def write_domain(
    folder: Path,
    spec: Spec,
    images: Callable[[int], Iterable[bytes]],
    provenance: Provenance | None = None,
    track: Track = silent,
    changed: Callable[[int], float] = lambda _: 0.0,
) -> int:
    """Write the encoded images of every class and the spec; returns how many classes it wrote.

    `images(class_id)` must give as many as the spec says, the same ones in every run. Classes that an earlier
    run finished are checked and kept, unless their images have `changed` since, a time in seconds.
    """
    spec_text(spec, str(folder / SPEC_FILE))  # one that cannot be written is refused before anything is
    try:
        with _alone(folder):
            _claim(folder, spec)
            if provenance is not None:
                _claim_origin(folder, provenance)
            for left_by_a_killed_run in folder.glob(".*.part"):
                left_by_a_killed_run.unlink()
            wanted = _unwritten(folder, spec, changed)
            if wanted and (folder / SPEC_FILE).exists():  # it is not complete while they are written
                (folder / SPEC_FILE).replace(folder / UNFINISHED_FILE)
            for class_id in track(wanted, label=f"writing {spec.name}", total=len(wanted)):
                _write_class(folder, spec, class_id, images(class_id))
            write_spec(folder, spec)
            (folder / UNFINISHED_FILE).unlink(missing_ok=True)
    except OSError as problem:
        raise DataError(
            f"{folder}: it cannot be written ({problem.strerror}): make room or choose another folder; "
            "the same command again keeps what is finished"
        ) from problem
    return len(wanted)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Refuse while another process writes here: each would remove what the other has begun."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / _LOCK_FILE, "ab") as file:
        hold(
            file.fileno(),
            f"{folder}: another process is writing this domain: wait for it to end, or choose another folder",
        )
        try:
            yield
        finally:
            with suppress(PermissionError):  # Windows keeps an open file
                (folder / _LOCK_FILE).unlink(missing_ok=True)


def _claim(folder: Path, spec: Spec) -> None:
    """Make sure that whatever lies here belongs to the same domain."""
    for name in (SPEC_FILE, UNFINISHED_FILE):
        if (folder / name).exists():
            if read_spec(folder / name) != spec:
                raise DataError(
                    f"{folder / name}: the folder holds another domain, or other classes or splits of "
                    f"{spec.name}: remove it or choose another folder"
                )
            return
    if any(folder.glob("*.tfrecords")):
        raise DataError(
            f"{folder}: it holds records but no {SPEC_FILE}, so their classes are unknown: "
            "choose another folder"
        )
    write_spec(folder, spec, UNFINISHED_FILE)


def _claim_origin(folder: Path, provenance: Provenance) -> None:
    """Make sure that no records of other images are kept as these, and say where they come from."""
    there = read_provenance(folder).origin
    if there not in ("", provenance.origin):
        raise DataError(
            f"{folder}: it holds other images ({there!r}, not {provenance.origin!r}): remove it or choose "
            "another folder"
        )
    write_provenance(folder, provenance)


def _unwritten(folder: Path, spec: Spec, changed: Callable[[int], float]) -> list[int]:
    """The classes whose file is missing, damaged, of another number of records than the spec says, or old."""
    files = [class_file(folder, class_id) for class_id in range(spec.classes)]
    there = [file for file in files if file.path.exists()]
    recent = [file for file in there if file.path.stat().st_mtime >= changed(file.class_id)]
    finished = {
        scan.file.class_id
        for scan in scan_files(recent)
        if not scan.faults and scan.records == spec.images_per_class[scan.file.class_id]
    }
    return [class_id for class_id in range(spec.classes) if class_id not in finished]


def begins_with(folder: Path, class_id: int, image: bytes) -> bool:
    """Is this the first image of the class's file?"""
    record = frame([encode_example(image, class_id)])
    with open(class_file(folder, class_id).path, "rb") as written:
        return written.read(len(record)) == record


def _write_class(folder: Path, spec: Spec, class_id: int, images: Iterable[bytes]) -> None:
    name = f"{spec.name}, class {class_id} ({spec.class_names[class_id]})"
    expected = spec.images_per_class[class_id]
    with whole_file(class_file(folder, class_id).path) as out:
        written = 0
        for contents in _batches(images, class_id, name):
            out.write(frame(contents))
            written += len(contents)
        if written != expected:
            raise DataError(
                f"{name}: {written} images were given but its spec says {expected}: count them again"
            )


def _batches(images: Iterable[bytes], class_id: int, name: str) -> Iterator[list[bytes]]:
    """The examples of a few megabytes at a time: checksums are quick for many records at once."""
    batch: list[bytes] = []
    filled = 0
    for place, image in enumerate(images):
        if not 0 < len(image) < MAX_RECORD - 1024:
            raise DataError(
                f"{name}: image {place} has {len(image):,} bytes, which cannot be one: take it out"
            )
        batch.append(encode_example(image, class_id))
        filled += len(image)
        if filled >= _BATCH_BYTES:
            yield batch
            batch, filled = [], 0
    yield batch
