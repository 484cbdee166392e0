"""Memory between processes is used again only when nobody can see it any more."""

import errno
import gc
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from fewshift.data import shared_memory
from fewshift.data.shared_memory import KEPT, PAGE, SharedMemory
from fewshift.errors import FewshiftError


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SharedMemory]:
    monkeypatch.setattr(shared_memory, "MEMORY_FOLDER", tmp_path)
    found = SharedMemory()
    yield found
    assert not list(tmp_path.iterdir())  # nothing that could stay behind, whenever this process ends
    found.close()


def size(descriptor: int) -> int:
    gc.collect()
    return os.fstat(descriptor).st_size // 4


def content(descriptor: int) -> np.ndarray:
    return np.frombuffer(os.pread(descriptor, os.fstat(descriptor).st_size, 0), np.float32)


def test_what_is_lent_is_in_the_file(memory: SharedMemory) -> None:
    _, _, first = memory.lend(10)
    file, start, second = memory.lend(PAGE + 5)
    first[...], second[...] = 1, 2
    assert (content(file)[:10] == 1).all()
    assert (content(file)[start : start + PAGE + 5] == 2).all()


def test_a_piece_comes_back_with_the_last_view_of_it(memory: SharedMemory) -> None:
    file, start, array = memory.lend(8 * PAGE)
    tensor = torch.from_numpy(array).view(8, PAGE)[3:, 5:]
    del array
    for turn in range(20):
        _, other, busy = memory.lend(8 * PAGE)
        busy[...] = turn
        assert other != start
        del busy
    tensor.fill_(-1)
    kept = tensor.numpy()
    del tensor
    taken = memory.lend(8 * PAGE)
    taken[2][...] = 3
    assert (kept == -1).all()
    del kept
    places = {memory.lend(8 * PAGE)[1] for _ in range(3)}
    assert start in places
    assert size(file) <= 3 * 8 * PAGE


def test_tasks_in_turn_waste_little(memory: SharedMemory) -> None:
    lengths = np.random.default_rng(0).integers(1, 200, 300) * PAGE
    live: list[np.ndarray] = []
    most = 0
    for length in lengths.tolist():
        file, _, array = memory.lend(length)
        live.append(array)
        most = max(most, sum(map(len, live)))
        del array
        del live[: max(0, len(live) - 6)]
    assert size(file) <= 1.2 * most


def test_little_is_kept_and_what_remains_stays_readable(memory: SharedMemory) -> None:
    file, _, small = memory.lend(PAGE)
    small[...] = 7
    large = memory.lend(KEPT // 4 + 99 * PAGE)[2]
    assert size(file) > KEPT // 4
    del large
    assert size(file) <= KEPT // 4 + PAGE
    memory.close()
    assert (small == 7).all()


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_memory_folder_is_told_once(memory: SharedMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_memory, "_told", False)
    allocate = os.posix_fallocate

    def full_at_first(descriptor: int, offset: int, length: int) -> None:
        if descriptor == memory.files[0].descriptor:
            full()
        allocate(descriptor, offset, length)

    monkeypatch.setattr(os, "posix_fallocate", full_at_first)
    with pytest.warns(UserWarning, match=r"has no room for a task of .* --shm-size=1g"):
        file, _, array = memory.lend(PAGE)
    assert file == memory.files[1].descriptor
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert memory.lend(PAGE)[0] == file
    array[...] = 4
    assert content(file)[5] == 4


def test_no_room_anywhere(memory: SharedMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "posix_fallocate", full)
    monkeypatch.setattr(shared_memory, "_told", True)
    with pytest.raises(FewshiftError, match=r"no room for a task of 3 MiB in .* or read with threads"):
        memory.lend(2**20 * 3 // 4)


def test_a_place_that_cannot_be_written_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for missing in (tmp_path / "memory", tmp_path / "temporary"):
        monkeypatch.setattr(shared_memory, "MEMORY_FOLDER", tmp_path / "memory")
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        if missing.name == "temporary":
            monkeypatch.setattr(shared_memory, "MEMORY_FOLDER", tmp_path)
            monkeypatch.setattr("tempfile.tempdir", str(missing))
        memory = SharedMemory()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert len(memory.lend(10)[2]) == 10
        memory.close()
