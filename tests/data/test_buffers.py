"""Memory that is used again only when nobody can see it any more."""

import gc
import threading

import numpy as np
import pytest
import torch

from fewshift.data import buffers
from fewshift.data.buffers import KEPT, STEP, lease


@pytest.fixture(autouse=True)
def _empty() -> None:
    gc.collect()
    buffers._free.clear()


def waiting() -> int:
    gc.collect()
    return sum(owner.nbytes for owner in buffers._free)


def test_memory_comes_back_when_the_last_view_is_gone() -> None:
    array, tensor = lease(STEP)
    array[...] = 7
    assert (tensor == 7).all()
    view, as_numpy = tensor[5:9].reshape(2, 2), tensor.numpy()[3:]
    address = tensor.data_ptr()
    del array, tensor
    assert waiting() == 0
    del view
    assert waiting() == 0
    assert as_numpy[0] == 7
    del as_numpy
    assert waiting() == STEP * 4
    assert lease(STEP - 9)[1].data_ptr() == address


def test_memory_in_use_is_never_given_twice() -> None:
    held = [lease(STEP) for _ in range(5)]
    for number, (array, _) in enumerate(held):
        array[...] = number
    assert all((tensor == number).all() for number, (_, tensor) in enumerate(held))
    assert len({tensor.data_ptr() for _, tensor in held}) == 5


def test_little_is_kept() -> None:
    others = dict(buffers._lent)
    many = [lease(STEP)[1] for _ in range(12)]
    del many
    assert 0 < waiting() <= KEPT
    large = lease(KEPT // 4)[1]
    assert waiting() == 0, "memory waits while more than enough is in use"
    del large
    assert buffers._lent == others


def test_small_and_unfitting_requests_do_not_take_large_buffers() -> None:
    lease(STEP * 4)
    before = waiting()
    small, tensor = lease(3, 5)
    assert small.shape == tensor.shape == (3, 5)
    middle = lease(STEP)[1]
    assert waiting() == before
    assert middle.shape == (STEP,)


def test_many_threads() -> None:
    wrong = []

    def work(number: int) -> None:
        for turn in range(60):
            array, tensor = lease(STEP // 2 + turn * 1000)
            array[:: 1 << 12] = number
            if not (tensor[:: 1 << 12] == number).all():
                wrong.append(number)
            del array, tensor

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert waiting() <= KEPT


def test_shared_storage_keeps_the_memory() -> None:
    array, tensor = lease(STEP)
    array[...] = 3
    clone = torch.from_numpy(np.asarray(tensor))
    del array, tensor
    assert waiting() == 0
    assert (clone == 3).all()
