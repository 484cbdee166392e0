"""Reading ahead changes nothing but the time: same tasks, same order, bounded memory, clean ends."""

import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from endless_runs import ended_from_outside, reading_workers

from fewshift.data.domain import Domain, Item, Pixels
from fewshift.data.episodes import EpisodeReader, reader
from fewshift.data.loader import prefetch
from fewshift.data.plan import TaskPlan, plans
from fewshift.data.protocol import VARYING, free
from fewshift.data.random import keyed_stream
from fewshift.data.spec import Spec, flat_spec
from fewshift.errors import DataError, FewshiftError
from fewshift.types import Episode

Kind = Literal["threads", "processes"]


def spec_named(name: str) -> Spec:
    return flat_spec(name, tuple(map(str, range(8))), (16,) * 8, {"test": 8})


@dataclass(frozen=True)
class Noise:
    """Pictures of noise of several sizes, some of them slow to come; one may be broken."""

    broken_class: int = -1

    def read(self, items: Sequence[Item]) -> list[Pixels]:
        time.sleep(0.02 * (sum(i for _, i in items) % 3))
        if any(c == self.broken_class for c, _ in items):
            raise DataError(f"class {self.broken_class} is damaged: copy it again")
        return [self.picture(c, i) for c, i in items]

    @staticmethod
    def picture(c: int, i: int) -> Pixels:
        words = keyed_stream("noise", c, i)
        side = 10 + 5 * words.below(3)
        return np.array([words.below(256) for _ in range(9)], np.uint8).repeat(side).reshape(side, 3, 3)


DOMAINS = [Domain(spec_named("a"), Noise(), "seen"), Domain(spec_named("b"), Noise())]


def planned(tasks: int) -> list[TaskPlan]:
    of_each = [plans(domain.spec, "test", VARYING, 3, count()) for domain in DOMAINS]
    return [next(of_each[number % len(DOMAINS)]) for number in range(tasks)]


def assert_same(found: Sequence[Episode], wanted: Sequence[Episode]) -> None:
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert (one.address, one.class_ids) == (other.address, other.class_ids)
        assert (one.task.way, one.task.seen) == (other.task.way, other.task.seen)
        pairs = [(one.task.support, other.task.support), (one.query, other.query)]
        for part, same in pairs:
            assert part.images.numpy().tobytes() == same.images.numpy().tobytes()
            assert part.images.shape == same.images.shape
            assert torch.equal(part.labels, same.labels)


@pytest.fixture(scope="module")
def read() -> EpisodeReader:
    return reader(DOMAINS, reveal_seen=True)


@pytest.fixture(scope="module")
def serial(read: EpisodeReader) -> list[Episode]:
    return [read(plan) for plan in planned(12)]


@pytest.mark.parametrize("workers", [0, 1, 2, 5, 30])
def test_threads_equal_serial(read: EpisodeReader, serial: list[Episode], workers: int) -> None:
    assert_same(list(prefetch(read, planned(12), workers=workers)), serial)


def test_order_of_reading_does_not_matter(read: EpisodeReader, serial: list[Episode]) -> None:
    assert_same(list(prefetch(read, planned(12)[::-1], workers=3)), serial[::-1])


@dataclass
class Counting:
    """Counts how many reads have begun."""

    begun: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def read(self, items: Sequence[Item]) -> list[Pixels]:
        with self.lock:
            self.begun += 1
        return [np.zeros((2, 2, 3), np.uint8)] * len(items)


@pytest.mark.parametrize("workers", [1, 2, 4, 7])
def test_memory_is_bounded(workers: int) -> None:
    source, asked, ahead = Counting(), 0, workers + 1

    def endless() -> Iterator[TaskPlan]:
        nonlocal asked
        for plan in plans(spec_named("c"), "test", free(5, 1, 1), 0, count()):
            asked += 1
            yield plan

    tasks = prefetch(reader([Domain(spec_named("c"), source)]), endless(), workers=workers)
    for taken in range(1, 21):
        next(tasks)
        if taken % 7 == 0:
            patience = time.monotonic() + 60
            while source.begun < taken + ahead and time.monotonic() < patience:
                time.sleep(0.001)
            time.sleep(0.05)  # time for what would run further than it may
            assert source.begun == asked == taken + ahead
        assert source.begun <= asked <= taken + ahead
    assert isinstance(tasks, Iterator)
    tasks.close()  # type: ignore[attr-defined]
    assert source.begun <= 20 + ahead


def readers() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("fewshift-read")]


def test_threads_end_with_the_iterator(read: EpisodeReader) -> None:
    endless = plans(DOMAINS[0].spec, "test", VARYING, 0, count())
    tasks = prefetch(read, endless, workers=3)
    assert len(list(islice(tasks, 3))) == 3
    assert readers()
    tasks.close()  # type: ignore[attr-defined]
    assert not readers()
    list(prefetch(read, planned(3)))
    assert not readers()


def test_workers_take_one_core_each_and_leave_others_alone() -> None:
    def threads_of_a_new_one() -> int:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(torch.get_num_threads).result()

    inside: list[int] = []

    def read(plan: TaskPlan) -> Episode:
        inside.append(torch.get_num_threads())
        return reader(DOMAINS)(plan)

    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        list(prefetch(read, planned(3), workers=2))
        assert inside == [1, 1, 1]
        assert torch.get_num_threads() == threads_of_a_new_one() == 3
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("workers", [0, 3])
def test_errors_come_in_their_turn_with_the_address(workers: int) -> None:
    spec = spec_named("b")
    broken = reader([Domain(spec, Noise(broken_class=6))])
    todo = [p for p in plans(spec, "test", free(5, 1, 1), 0, range(40)) if 6 not in p.class_ids][:4]
    (bad, *_) = (p for p in plans(spec, "test", free(5, 1, 1), 0, range(40)) if 6 in p.class_ids)
    tasks = prefetch(broken, [*todo, bad, *todo], workers=workers)
    assert [next(tasks).address for _ in todo] == [plan.address for plan in todo]
    where = rf"task {bad.address.index} of b \(test split, seed 0\): class 6 is damaged: copy it again"
    with pytest.raises(DataError, match=where):
        next(tasks)
    assert not readers()


@pytest.mark.parametrize("workers", [0, 3])
def test_a_failing_plan_waits_for_its_turn(read: EpisodeReader, workers: int) -> None:
    def failing() -> Iterator[TaskPlan]:
        yield from planned(2)
        raise DataError("line 4 of the manifest is damaged")

    tasks = prefetch(read, failing(), workers=workers)
    assert [next(tasks).address for _ in range(2)] == [plan.address for plan in planned(2)]
    with pytest.raises(DataError, match="line 4"):
        next(tasks)
    assert not readers()


def test_impossible_settings_are_refused(read: EpisodeReader) -> None:
    with pytest.raises(FewshiftError, match="-1 workers: give 0 or more"):
        prefetch(read, [], workers=-1)


@pytest.mark.slow
def test_processes_pass_errors_on_and_end(read: EpisodeReader) -> None:
    spec = spec_named("b")
    (bad, *_) = (p for p in plans(spec, "test", free(5, 1, 1), 0, range(40)) if 6 in p.class_ids)
    broken = reader([Domain(spec, Noise(broken_class=6))])
    with pytest.raises(DataError, match=rf"task {bad.address.index} of b \(test split, seed 0\): class 6 is"):
        list(prefetch(broken, [bad], workers=1, kind="processes"))
    assert not reading_workers()
    tasks = prefetch(read, plans(DOMAINS[0].spec, "test", VARYING, 0, count()), workers=1, kind="processes")
    next(tasks)
    (worker,) = reading_workers()
    worker.kill()
    with pytest.raises(FewshiftError, match="a process that reads tasks was ended from outside"):
        list(tasks)


SCRIPT = """
import sys
sys.path.insert(0, {folder!r})
from itertools import count
from test_loader import DOMAINS, VARYING, plans, prefetch, reader

if __name__ == "__main__":
    endless = plans(DOMAINS[0].spec, "test", VARYING, 0, count())
    for number, task in enumerate(prefetch(reader(DOMAINS), endless, workers=1, kind={kind!r})):
        print(number, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "end"), [("threads", signal.SIGINT), ("processes", signal.SIGINT), ("processes", signal.SIGKILL)]
)
def test_ctrl_c_and_kill_leave_nothing_behind(kind: Kind, end: signal.Signals, tmp_path: Path) -> None:
    script = tmp_path / "endless.py"
    script.write_text(SCRIPT.format(folder=str(Path(__file__).parent), kind=kind))
    workers = ended_from_outside(script, end, 3, reading_workers)
    assert len(workers) == (1 if kind == "processes" else 0)
