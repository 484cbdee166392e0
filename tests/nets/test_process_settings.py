"""Two threads that work at once: each computes with its own settings, and the process keeps its own."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest
import torch

from fewshift.core.updates import Adadelta
from fewshift.nets.backbone import freeze
from fewshift.nets.engine import FoldedEngine
from fewshift.nets.precision import arithmetic
from fewshift.nets.resnet import ResNet18
from fewshift.nets.threads import ONE_THREAD_BELOW, suited_threads
from fewshift.types import Labelled, Task

T = TypeVar("T")
CPU = torch.device("cpu")
PATIENCE = 60  # seconds


@pytest.fixture
def _three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def in_a_new_thread(ask: Callable[[], T]) -> T:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(ask).result()


@pytest.mark.usefixtures("_three_threads")
def test_a_thread_begun_during_small_work_keeps_every_cpu_thread() -> None:
    with suited_threads(1.0, CPU):
        assert torch.get_num_threads() == 1
        assert in_a_new_thread(torch.get_num_threads) == 3
        with suited_threads(2 * ONE_THREAD_BELOW, CPU), suited_threads(1.0, CPU):
            assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 3
    assert in_a_new_thread(torch.get_num_threads) == 3


@pytest.mark.usefixtures("_three_threads")
def test_small_work_in_two_threads_at_once_leaves_every_number_as_it_was() -> None:
    together, first_left = threading.Barrier(2), threading.Event()

    def work(leaves_first: bool) -> tuple[int, int, int]:
        with suited_threads(1.0, CPU):
            together.wait(PATIENCE)
            early = torch.get_num_threads()
            if not leaves_first:
                assert first_left.wait(PATIENCE)
            late = torch.get_num_threads()
        first_left.set()
        return early, late, torch.get_num_threads()

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(work, [True, False])) == [(1, 1, 3)] * 2
    assert torch.get_num_threads() == 3
    assert in_a_new_thread(torch.get_num_threads) == 3


@pytest.mark.usefixtures("_three_threads")
def test_a_thread_whose_first_work_falls_into_a_switch_gets_its_number_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    switch, began, numbers = torch.set_num_threads, threading.Event(), []

    def work() -> None:
        numbers.append(torch.get_num_threads())
        began.set()
        with suited_threads(2 * ONE_THREAD_BELOW, CPU):
            numbers.append(torch.get_num_threads())

    late = threading.Thread(target=work)

    def switch_while_another_begins(count: int) -> None:
        switch(count)
        if count == 1:
            late.start()
            assert began.wait(PATIENCE)

    monkeypatch.setattr(torch, "set_num_threads", switch_while_another_begins)
    with suited_threads(1.0, CPU):
        monkeypatch.undo()
        late.join(PATIENCE)
    assert numbers == [1, 3]
    assert in_a_new_thread(torch.get_num_threads) == 3


@pytest.mark.usefixtures("_three_threads")
def test_failed_work_gives_the_cpu_threads_back() -> None:
    with pytest.raises(ZeroDivisionError), suited_threads(1.0, CPU):
        _ = 1 / 0
    assert torch.get_num_threads() == 3


@pytest.mark.usefixtures("_three_threads")
def test_two_adaptations_at_once_are_those_that_one_after_the_other_gives() -> None:
    backbone = freeze(ResNet18(4, 1).eval())
    engine, rule = FoldedEngine(backbone), Adadelta(dict.fromkeys(backbone.sites, 0.1))
    images = torch.randn(2, 12, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    tasks = [Task(Labelled(own, torch.arange(12) % 3), 3) for own in images]

    def losses(task: Task) -> list[float]:
        return engine.adapt(task, backbone.init(), rule, 8).losses.tolist()

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(losses, tasks)) == [losses(task) for task in tasks]
        assert set(pool.map(lambda _: torch.get_num_threads(), tasks)) == {3}


def rounded() -> tuple[bool, bool]:
    return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32


def test_two_threads_compute_in_their_own_precision_and_leave_the_process_its_own() -> None:
    before = rounded()
    first_is_in, second_is_in, first_is_out = threading.Event(), threading.Event(), threading.Event()

    def first() -> list[tuple[bool, bool]]:
        with arithmetic("tf32"):
            first_is_in.set()
            second_is_in.wait(0.2)  # in vain
            seen = [rounded()]
            with arithmetic("float32"):
                seen.append(rounded())
            seen.append(rounded())
        first_is_out.set()
        return seen

    def second() -> list[tuple[bool, bool]]:
        assert first_is_in.wait(PATIENCE)
        with arithmetic("float32"):
            second_is_in.set()
            assert first_is_out.wait(PATIENCE)
            return [rounded()]

    with ThreadPoolExecutor(2) as pool:
        one, other = pool.submit(first), pool.submit(second)
        assert one.result() == [(True, True), (False, False), (True, True)]
        assert other.result() == [(False, False)]
    assert rounded() == before
