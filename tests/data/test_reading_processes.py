"""Processes read what one would read alone; they are light, are kept, and leave nothing behind."""

import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from pathlib import Path

import psutil
import pytest
import torch
from endless_runs import ended_from_outside, reading_workers
from small_records import small_domain

from fewshift.data import shared_memory
from fewshift.data.cache import build_cache, open_cached
from fewshift.data.domain import Domain, ImageSource, Item, Pixels
from fewshift.data.drawn import drawn_domain
from fewshift.data.episodes import load_episode, reader
from fewshift.data.loader import prefetch
from fewshift.data.pixels import practical
from fewshift.data.plan import TaskPlan, plans
from fewshift.data.protocol import free
from fewshift.data.reading_processes import CannotStart, Processes, divide, end_resting
from fewshift.data.records_folder import open_domain
from fewshift.types import Episode

PROTOCOL = free(5, 6, 6)  # 60 images: divided among two


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Domain:
    folder, _ = small_domain(tmp_path_factory.mktemp("records"), (12,) * 8)
    return open_domain(folder)


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    end_resting()
    yield
    end_resting()
    assert not reading_workers()


def planned(records: Domain, tasks: int) -> list[TaskPlan]:
    return list(plans(records.spec, "train", PROTOCOL, 0, range(tasks)))


def pixels(episode: Episode) -> bytes:
    return episode.task.support.images.numpy().tobytes() + episode.query.images.numpy().tobytes()


def test_a_task_that_is_kept_is_not_written_over(records: Domain) -> None:
    read, todo = reader([records]), planned(records, 30)
    whole, views = [], []
    for number, episode in enumerate(prefetch(read, todo, kind="processes")):
        if number % 3 == 0:
            whole.append((todo[number], episode))
        elif number % 3 == 1:
            views.append((todo[number], episode.query.images[1:, :, 5]))
        del episode
    assert [pixels(episode) for _, episode in whole] == [pixels(read(plan)) for plan, _ in whole]
    for plan, view in views:
        assert torch.equal(view, read(plan).query.images[1:, :, 5])


def test_who_reads_is_chosen_by_the_source(records: Domain, tmp_path: Path) -> None:
    build_cache(records, tmp_path / "cache")
    for domain in (records, open_cached(records, tmp_path / "cache")):
        tasks = prefetch(reader([domain]), planned(records, 3))
        next(tasks)
        assert len(reading_workers()) == 2
        assert len(list(tasks)) == 2
    end_resting()
    drawn = drawn_domain("shapes")
    tasks = prefetch(reader([drawn]), plans(drawn.spec, "test", PROTOCOL, 0, range(2)))
    next(tasks)
    assert not reading_workers()
    by_function = prefetch(lambda plan: load_episode(records, plan), planned(records, 2))
    next(by_function)
    assert not reading_workers()


def test_all_rules_and_every_number_of_workers(records: Domain) -> None:
    todo = planned(records, 4)
    for rule, count_ in ((practical(40), 2), (practical(32, crop=0.8), 3)):
        read = reader([records], rule)
        serial = [pixels(read(plan)) for plan in todo]
        found = prefetch(read, todo, workers=count_, kind="processes")
        assert [pixels(episode) for episode in found] == serial


def test_processes_are_light_and_kept(records: Domain) -> None:
    read = reader([records])
    ids = []
    for _ in range(2):
        list(prefetch(read, planned(records, 3), kind="processes"))
        ids.append(sorted(worker.pid for worker in reading_workers()))
    assert ids[0] == ids[1]
    assert len(ids[0]) == 2
    if sys.platform == "linux":
        for pid in ids[0]:
            assert "libtorch" not in Path(f"/proc/{pid}/maps").read_text()
    (first, _) = reading_workers()
    first.kill()
    while first.status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    assert len(list(prefetch(read, planned(records, 3), kind="processes"))) == 3
    assert len(reading_workers()) == 2
    both = zip(*(prefetch(read, planned(records, 2), kind="processes") for _ in range(2)), strict=True)
    assert all(pixels(one) == pixels(other) for one, other in both)
    assert len(reading_workers()) == 2


def test_tasks_come_before_the_processes_have_started(records: Domain) -> None:
    read, (plan,) = reader([records]), planned(records, 1)
    assert [pixels(episode) for episode in prefetch(read, [plan])] == [pixels(read(plan))]
    endless = plans(records.spec, "train", PROTOCOL, 0, count())
    tasks = prefetch(read, endless)
    numbers = [episode.address.index for episode in islice(tasks, 200)]
    assert numbers == list(range(200))
    assert len(reading_workers()) == 2
    tasks.close()  # type: ignore[attr-defined]
    assert not reading_workers()


def test_threads_stand_in_where_no_process_starts(records: Domain, monkeypatch: pytest.MonkeyPatch) -> None:
    read, todo = reader([records]), planned(records, 4)
    for executable in ("/nowhere/python", "/bin/false"):
        monkeypatch.setattr(sys, "executable", executable)
        for kind in (None, "processes"):
            found = []
            for episode in prefetch(read, todo, kind=kind):
                found.append(pixels(episode))
                time.sleep(0.05)
            assert found == [pixels(read(plan)) for plan in todo]


def test_threads_stand_in_where_there_is_no_place_for_memory(
    records: Domain, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(shared_memory, "MEMORY_FOLDER", tmp_path / "missing")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    read, todo = reader([records]), planned(records, 3)
    assert [pixels(episode) for episode in prefetch(read, todo)] == [pixels(read(plan)) for plan in todo]
    assert not reading_workers()


def test_threads_stand_in_for_a_reader_that_cannot_be_sent(records: Domain) -> None:
    class OfNoModule(Domain):
        pass

    read, todo = reader([OfNoModule(records.spec, records.source)]), planned(records, 3)
    assert [pixels(episode) for episode in prefetch(read, todo)] == [pixels(read(plan)) for plan in todo]


@dataclass(frozen=True)
class Talking:
    """Prints while it reads; what goes wrong in it could not be sent as it is."""

    source: ImageSource
    bad: bool = False

    def read(self, items: Sequence[Item]) -> list[Pixels]:
        print("reading", flush=True)
        if self.bad:
            raise Unsendable(1, 2)
        return self.source.read(items)


class Unsendable(Exception):
    def __init__(self, one: int, other: int) -> None:
        super().__init__(f"{one} and {other}")


def test_any_source_can_be_used(records: Domain) -> None:
    read, todo = reader([records]), planned(records, 3)
    talking, bad = (reader([replace(records, source=Talking(records.source, bad))]) for bad in (False, True))
    found = prefetch(talking, todo, kind="processes")
    assert [pixels(episode) for episode in found] == [pixels(read(plan)) for plan in todo]
    with pytest.raises(RuntimeError, match=r"task 0 of small .*: Unsendable: 1 and 2") as caught:
        list(prefetch(bad, todo, kind="processes"))
    assert "in a process that reads tasks:\nTraceback" in str(caught.value.__cause__)


def test_division(records: Domain) -> None:
    (plan,) = planned(records, 1)
    for parts in range(8):
        found = list(divide(plan, parts))
        assert len(found) == min(max(parts, 1), plan.way)
        assert sum((part.class_ids for part in found), ()) == plan.class_ids
        assert sum((part.support for part in found), ()) == plan.support
        assert sum((part.query for part in found), ()) == plan.query
        images = [sum(map(len, (*part.support, *part.query))) for part in found]
        assert max(images) - min(images) <= 12


SCRIPT = """
import sys, time
from itertools import count
from pathlib import Path
from fewshift.data.episodes import reader
from fewshift.data.loader import prefetch
from fewshift.data.plan import plans
from fewshift.data.protocol import free
from fewshift.data.records_folder import open_domain

domain = open_domain(Path({folder!r}))  # no `if __name__ == "__main__":` is needed
endless = plans(domain.spec, "train", free(5, 6, 6), 0, count())
for number, task in enumerate(prefetch(reader([domain]), endless, kind="processes")):
    print(number, flush=True)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_an_end_from_outside_leaves_no_process_and_no_memory(
    records: Domain, end: signal.Signals, tmp_path: Path
) -> None:
    folder = Path(records.source.folder)  # type: ignore[attr-defined]
    script = tmp_path / "endless.py"
    script.write_text(SCRIPT.format(folder=str(folder)))

    def named_memory(process: psutil.Process) -> list[str]:
        children = reading_workers(process)
        assert len(children) == 2
        lines = Path(f"/proc/{children[0].pid}/maps").read_text().splitlines()
        shared = [line for line in lines if " rw-s " in line]
        assert shared
        return [line for line in shared if not line.endswith("(deleted)")]

    assert not ended_from_outside(script, end, 5, named_memory)  # a file without a name goes with them


def test_results_may_be_written_to(records: Domain) -> None:
    first, *_ = prefetch(reader([records]), planned(records, 2), kind="processes")
    first.query.images.add_(1)
    assert first.task.support.images.untyped_storage().nbytes() == 30 * 3 * 84 * 84 * 4
    assert torch.isfinite(first.query.images).all()


def test_a_system_that_passes_no_descriptors_on_has_threads_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(*_: object, **__: object) -> None:
        raise ValueError("pass_fds not supported on Windows.")

    monkeypatch.setattr("fewshift.data.reading_processes.subprocess.Popen", refusing)
    with pytest.raises(CannotStart, match="read with threads"):
        Processes(2)
