"""Memory between processes is used again only when nobody can see it any more."""

import errno
import gc
import os
import shutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from fewshift.data import shared_memory
from fewshift.data.shared_memory import KEPT, PAGE, PREFIX, SharedMemory
from fewshift.errors import FewshiftError


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SharedMemory]:
    monkeypatch.setattr(shared_memory, "MEMORY_FOLDER", tmp_path)
    found = SharedMemory()
    yield found
    found.close()
    assert not list(tmp_path.iterdir())


def size(path: Path) -> int:
    gc.collect()
    return path.stat().st_size // 4


def test_what_is_lent_is_in_the_file(memory: SharedMemory) -> None:
    _, _, first = memory.lend(10)
    path, start, second = memory.lend(PAGE + 5)
    first[...], second[...] = 1, 2
    content = np.fromfile(path, np.float32)
    assert (content[:10] == 1).all()
    assert (content[start : start + PAGE + 5] == 2).all()


def test_a_piece_comes_back_with_the_last_view_of_it(memory: SharedMemory) -> None:
    path, start, array = memory.lend(8 * PAGE)
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
    assert size(path) <= 3 * 8 * PAGE


def test_tasks_in_turn_waste_little(memory: SharedMemory) -> None:
    lengths = np.random.default_rng(0).integers(1, 200, 300) * PAGE
    live: list[np.ndarray] = []
    most = 0
    for length in lengths.tolist():
        path, _, array = memory.lend(length)
        live.append(array)
        most = max(most, sum(map(len, live)))
        del array
        del live[: max(0, len(live) - 6)]
    assert size(path) <= 1.2 * most


def test_little_is_kept_and_what_remains_stays_readable(memory: SharedMemory) -> None:
    path, _, small = memory.lend(PAGE)
    small[...] = 7
    large = memory.lend(KEPT // 4 + 99 * PAGE)[2]
    assert size(path) > KEPT // 4
    del large
    assert size(path) <= KEPT // 4 + PAGE
    memory.close()
    assert (small == 7).all()


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_memory_folder_is_told_once(
    memory: SharedMemory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path.parent / f"{tmp_path.name}-other"
    other.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(other))
    monkeypatch.setattr(shared_memory, "_told", False)
    allocate, calls = os.posix_fallocate, []

    def full_at_first(handle: int, offset: int, length: int) -> None:
        calls.append(length)
        if str(tmp_path) + os.sep in os.readlink(f"/proc/self/fd/{handle}"):
            full()
        allocate(handle, offset, length)

    monkeypatch.setattr(os, "posix_fallocate", full_at_first)
    with pytest.warns(UserWarning, match=r"has no room for a task of .* --shm-size=1g"):
        path, _, array = memory.lend(PAGE)
    assert path.is_relative_to(other)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert memory.lend(PAGE)[0] == path
    array[...] = 4
    assert np.fromfile(path, np.float32)[5] == 4
    memory.close()
    assert not list(other.iterdir())


def test_no_room_anywhere(memory: SharedMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "posix_fallocate", full)
    monkeypatch.setattr(shared_memory, "_told", True)
    with pytest.raises(FewshiftError, match=r"no room for a task of 3 MiB in .* or read with threads"):
        memory.lend(2**20 * 3 // 4)


@pytest.mark.skipif(sys.platform == "win32", reason="there a file in use cannot be removed")
def test_what_killed_processes_left_is_removed_and_what_is_in_use_is_not(memory: SharedMemory) -> None:
    home = shared_memory.MEMORY_FOLDER
    in_use, _, _ = memory.lend(10)
    abandoned, recent = home / f"{PREFIX}abandoned", home / f"{PREFIX}recent"
    for folder in (abandoned, recent):
        folder.mkdir()
        (folder / "tasks").write_bytes(b"pixels")
    for folder in (abandoned, in_use.parent):
        os.utime(folder, (1, 1))
    another = SharedMemory()
    another.lend(10)
    assert not abandoned.exists()
    assert recent.is_dir()
    assert in_use.exists()
    another.close()
    shutil.rmtree(recent)


@pytest.mark.skipif(sys.platform == "win32", reason="there a file in use cannot be removed")
def test_a_place_without_locks_serves_too(memory: SharedMemory, monkeypatch: pytest.MonkeyPatch) -> None:
    path, _, _ = memory.lend(10)
    os.utime(path.parent, (1, 1))

    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr("fcntl.flock", no_locks)
    another = SharedMemory()
    another.lend(10)
    assert path.exists()  # nobody can tell whether it is in use
    another.close()
