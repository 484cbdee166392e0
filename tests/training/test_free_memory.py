"""What can be had is what a container may still take, where that is less than what the machine has."""

from pathlib import Path

import pytest
import torch

from fewshift.training import free_memory as module
from fewshift.training.free_memory import free_memory, room_in_groups

Names = tuple[str, str, str]
SECOND = ("memory.max", "memory.current", "inactive_file {}\nactive_file {}\nanon 7\n")
FIRST = (
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    "cache 9\ntotal_inactive_file {}\ntotal_active_file {}\n",
)


def group(folder: Path, names: Names, limit: int | str, used: int, *cache: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(names[2].format(*(cache or (0, 0))))


def room(tmp_path: Path, own: str) -> int | None:
    (tmp_path / "own").write_text(own)
    return room_in_groups(tmp_path / "own", tmp_path / "mounted")


@pytest.mark.parametrize(
    ("names", "mount", "line"), [(SECOND, ".", "0::"), (FIRST, "memory", "3:cpu:/\n7:hugetlb,memory:")]
)
class TestGroups:
    def test_pages_of_files_can_be_had(self, tmp_path: Path, names: Names, mount: str, line: str) -> None:
        group(tmp_path / "mounted" / mount / "a", names, 1000, 900, 300, 50)
        assert room(tmp_path, f"{line}/a\n") == 450

    def test_the_tightest_of_nested_groups_counts(
        self, tmp_path: Path, names: Names, mount: str, line: str
    ) -> None:
        top = tmp_path / "mounted" / mount
        for folder, limit in ((top / "a/b", 5000), (top / "a", 800), (top, 9000)):
            group(folder, names, limit, 500)
        assert room(tmp_path, f"{line}/a/b\n") == 300

    def test_a_container_sees_its_own_group_as_the_top(
        self, tmp_path: Path, names: Names, mount: str, line: str
    ) -> None:
        group(tmp_path / "mounted" / mount, names, 1000, 1200)
        assert room(tmp_path, f"{line}/docker/123\n") == 0

    def test_without_a_limit_nothing_is_said(
        self, tmp_path: Path, names: Names, mount: str, line: str
    ) -> None:
        group(tmp_path / "mounted" / mount / "a", names, "max", 900)
        assert room(tmp_path, f"{line}/a\n") is None
        assert room(tmp_path, f"{line}/elsewhere\n") is None


def test_without_groups_nothing_is_said(tmp_path: Path) -> None:
    assert room_in_groups(tmp_path / "nowhere") is None
    assert room(tmp_path, "") is None


def test_the_smaller_of_machine_and_container_can_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    free = free_memory(torch.device("cpu"))
    assert free is None or 0 <= free < 2**50
    for limit in (4096, None):
        monkeypatch.setattr(module, "room_in_groups", lambda limit=limit: limit)
        found = free_memory(torch.device("cpu"))
        assert found is None or found == (limit or found) > 0
