"""Tasks per second from the cache, from encoded records and by streaming class files, on the same tasks.

    fewshift bench data --records RECORDS --tasks 64

RECORDS is a folder of converted domains. Prints one JSON object. The streaming reader is what PyPI `tfrecord`
offers: go through the file of every class of the task up to the last record that is wanted, keep the planned
ones, decode them with Pillow, resize them with PyTorch; it works on one core. The others read ahead with two
workers, as every command does. The readers take turns, a few tasks of every domain at a time and every turn
three times, of which the quickest counts: other work on the machine meets all of them and is mostly left out.
The processor's time is given as well, because other work changes it less. Time and memory are those of all
processes together; memory that they share counts once.
"""

from __future__ import annotations

import contextlib
import io
import os
import platform
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import psutil
import torch
import torch.nn.functional as F
from PIL import Image
from tfrecord.reader import tfrecord_loader
from torch import Tensor

from fewshift.data.cache import build_cache, open_cached, protocol_rule
from fewshift.data.domain import Domain, Item, Pixels
from fewshift.data.episodes import EpisodeReader
from fewshift.data.loader import prefetch
from fewshift.data.pixels import PROTOCOL_84, PROTOCOL_84_ROUNDED, PixelRule
from fewshift.data.plan import TaskPlan, plans
from fewshift.data.protocol import VARYING
from fewshift.data.records_folder import open_records
from fewshift.errors import DataError
from fewshift.progress import Track, silent

MIB = 2**20
WORKERS = 2
TURNS = 3
A_TURN = 48  # tasks: so many that the workers' start and the wait for the last one hardly count
Tensors: TypeAlias = tuple[Tensor, Tensor]  # support, query
Read: TypeAlias = Callable[[Sequence[TaskPlan]], Iterable[Tensors]]


def run(records: Path, tasks: int, track: Track = silent) -> dict[str, Any]:
    """The measurements, those with a target beside it."""
    domains = {domain.name: domain for domain in open_records(records)}
    with tempfile.TemporaryDirectory(prefix="fewshift-bench-") as folder:
        named = track(domains.items(), label="caches", total=len(domains))
        cached = {name: _cached(domain, Path(folder) / name) for name, domain in named}
        rounded = PROTOCOL_84_ROUNDED in map(protocol_rule, cached.values())
        rule = PROTOCOL_84_ROUNDED if rounded else PROTOCOL_84  # under which all readers give the same
        rounds = _rounds(domains.values(), tasks)
        readers: dict[str, Read] = {
            "cache": lambda todo: _read_ahead(cached, rule, todo),
            "encoded": lambda todo: _read_ahead(domains, rule, todo),
            "streaming": lambda todo: _stream(records, rule, todo),
        }
        growth = _memory_growth(readers["cache"], rounds)  # first: later, memory would be there already
        _check_equal(readers, rounds[0])
        seconds, busy = _take_turns(readers, _turns(rounds), track)
    count = sum(map(len, rounds))
    speed = {name: count / taken for name, taken in seconds.items()}
    images = [sum(map(len, (*plan.support, *plan.query))) for todo in rounds for plan in todo]
    return {
        "machine": _machine(),
        "tasks": {"count": count, "domains": len(rounds[0]), "mean_images": sum(images) / count},
        "results": [
            result("streaming: tasks a second", speed["streaming"]),
            result("encoded records: tasks a second", speed["encoded"]),
            result("cache: tasks a second", speed["cache"], at_least=50),
            result("encoded records / streaming", speed["encoded"] / speed["streaming"], at_least=5),
            result("cache / streaming", speed["cache"] / speed["streaming"], at_least=20),
            result("cache: growth of resident memory, MiB", growth / MIB, at_most=300),
            *(result(f"{name}: processor ms a task", 1e3 * taken / count) for name, taken in busy.items()),
        ],
    }


def _cached(domain: Domain, folder: Path) -> Domain:
    build_cache(domain, folder)
    return open_cached(domain, folder)


def _rounds(domains: Iterable[Domain], tasks: int) -> list[list[TaskPlan]]:
    """One standard task of every domain's test split per round, `tasks` of them or a few more."""
    choosable = []
    for domain in domains:
        try:
            choosable.append((domain, plans(domain.spec, "test", VARYING, 0, range(tasks))))
        except DataError as problem:  # noqa: PERF203
            print(f"left out: {problem}", file=sys.stderr)
    if not choosable:
        raise DataError("no domain of this folder can give a standard task: give another folder")
    return [[next(planned) for _, planned in choosable] for _ in range(-(-tasks // len(choosable)))]


def _read_ahead(domains: dict[str, Domain], rule: PixelRule, todo: Sequence[TaskPlan]) -> Iterator[Tensors]:
    for episode in prefetch(EpisodeReader(domains, rule), todo, workers=WORKERS):
        yield episode.task.support.images, episode.query.images


def _stream(records: Path, rule: PixelRule, todo: Sequence[TaskPlan]) -> Iterator[Tensors]:
    for plan in todo:
        support, query = (
            [(c, i) for c, row in zip(plan.class_ids, rows, strict=True) for i in row]
            for rows in (plan.support, plan.query)
        )
        wanted, found = {*support, *query}, dict[Item, bytes]()
        for c in plan.class_ids:
            file = records / plan.address.domain / f"{c}.tfrecords"
            last = max(place for of_class, place in wanted if of_class == c)
            for place, record in enumerate(tfrecord_loader(str(file), None, {"image": "byte"})):
                if (c, place) in wanted:
                    found[c, place] = record["image"]
                if place == last:
                    break
        yield (
            torch.stack([_resized(_decoded(found[item]), rule.rounded) for item in support]),
            torch.stack([_resized(_decoded(found[item]), rule.rounded) for item in query]),
        )


def _decoded(encoded: bytes) -> Pixels:
    return np.array(Image.open(io.BytesIO(encoded)).convert("RGB"))


def _resized(picture: Pixels, rounded: bool) -> Tensor:  # (h, w, 3) -> (3, 84, 84)
    planes = torch.from_numpy(picture).permute(2, 0, 1).float()
    levels = F.interpolate(planes[None], size=(84, 84), mode="bilinear", align_corners=True)[0]
    return 2 * ((levels.round() if rounded else levels) / 255 - 0.5)


def _check_equal(readers: dict[str, Read], todo: list[TaskPlan]) -> None:
    """The cache gives the very images of the records, the streaming reader those of another arithmetic."""
    reads = (readers[name](todo) for name in ("cache", "encoded", "streaming"))
    for plan, *tasks in zip(todo, *reads, strict=True):
        for cache, encoded, streaming in zip(*tasks, strict=True):
            if not torch.equal(cache, encoded):
                raise RuntimeError(f"{plan.address}: the cache gives other images than the records")
            if (encoded - streaming).abs().mean() > 1e-4:
                raise RuntimeError(f"{plan.address}: the streaming reader gives other images")


def _turns(rounds: Sequence[list[TaskPlan]]) -> list[list[TaskPlan]]:
    """Rounds put together."""
    together = max(1, A_TURN // len(rounds[0]))
    starts = range(0, len(rounds), together)
    return [[plan for todo in rounds[start : start + together] for plan in todo] for start in starts]


def _take_turns(
    readers: dict[str, Read], rounds: Sequence[list[TaskPlan]], track: Track
) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds of each reader for all rounds, and of the cores it kept busy."""
    seconds, busy = dict.fromkeys(readers, 0.0), dict.fromkeys(readers, 0.0)
    for todo in track(rounds, label="turns of all readers", total=len(rounds)):
        turns = [{name: _seconds(read, todo) for name, read in readers.items()} for _ in range(TURNS)]
        for name in readers:
            seconds[name] += min(turn[name][0] for turn in turns)
            busy[name] += min(turn[name][1] for turn in turns)
    return seconds, busy


def _seconds(read: Read, todo: Sequence[TaskPlan]) -> tuple[float, float]:
    begin, begin_busy = time.perf_counter(), _busy()
    for _ in read(todo):
        pass
    return time.perf_counter() - begin, _busy() - begin_busy


def _busy() -> float:
    """Seconds of processor time that this process and its children have used."""
    children = [child.cpu_times() for child in psutil.Process().children()]
    return time.process_time() + sum(float(used.user + used.system) for used in children)


def _memory_growth(read: Read, rounds: Sequence[list[TaskPlan]]) -> int:
    """Bytes by which all processes together grow, at their largest, while all rounds are read."""
    stop = threading.Event()
    before = peak = _resident()

    def watch() -> None:
        nonlocal peak
        while not stop.wait(0.01):
            peak = max(peak, _resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        for todo in rounds:
            _seconds(read, todo)
    finally:
        stop.set()
        watcher.join()
    return peak - before


def _resident() -> int:
    """Memory of this process and its children; what they share counts once where the system can tell."""
    total = 0
    for process in (psutil.Process(), *psutil.Process().children()):
        with contextlib.suppress(psutil.NoSuchProcess):
            full = process.memory_full_info()
            total += getattr(full, "pss", full.rss)
    return total


def result(
    name: str, value: float, at_least: float | None = None, at_most: float | None = None
) -> dict[str, Any]:
    """A line of the outcome, with its target if it has one."""
    result: dict[str, Any] = {"name": name, "value": round(value, 2)}
    if at_least is not None:
        result |= {"target": f"at least {at_least:g}", "met": value >= at_least}
    if at_most is not None:
        result |= {"target": f"at most {at_most:g}", "met": value <= at_most}
    return result


def _machine() -> dict[str, Any]:
    return {
        "system": platform.platform(),
        "processor": platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "python": platform.python_version(),
        "packages": {name: version(name) for name in ("torch", "numpy", "pillow", "tfrecord")},
    }
