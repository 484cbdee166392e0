"""How much memory can be had: the device's, or the machine's as far as this process's control groups allow.

In a container /proc tells of the whole machine, and whoever takes more than the container may is killed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import torch


class _Files(NamedTuple):
    """What a version of control groups calls its files, and the page cache in the last one."""

    mount: str
    limit: str
    used: str
    cache: tuple[str, ...]


_FIRST = _Files(
    "memory",
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    ("total_inactive_file", "total_active_file"),
)
_SECOND = _Files("", "memory.max", "memory.current", ("inactive_file", "active_file"))


def free_memory(device: torch.device) -> int | None:
    """Bytes that can be had on this device; None where the system does not say."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return min((found for found in (_of_the_machine(), room_in_groups()) if found is not None), default=None)


def room_in_groups(
    own: Path = Path("/proc/self/cgroup"), mounted: Path = Path("/sys/fs/cgroup")
) -> int | None:
    """Bytes until a memory limit of the groups in the file `own`; None without a limit. Either version.

    A group's pages of files do not count: they are given back before anything is killed.
    """
    with suppress(OSError):
        lines = [line.split(":", 2) for line in own.read_text(encoding="utf-8").splitlines()]
        return min(
            (room for number, names, path in lines for room in _rooms(number, names, path, mounted)),
            default=None,
        )
    return None


def _of_the_machine() -> int | None:
    with suppress(OSError, KeyError, ValueError), open("/proc/meminfo", encoding="ascii") as lines:
        found = {name: value for name, _, value in (line.partition(":") for line in lines)}
        return int(found["MemAvailable"].split()[0]) * 1024
    with suppress(AttributeError, ValueError, OSError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return None


def _rooms(number: str, controllers: str, path: str, mounted: Path) -> Iterator[int]:
    """What a group and those above it leave, as far as they say."""
    if number != "0" and "memory" not in controllers.split(","):
        return
    names = _SECOND if number == "0" else _FIRST
    top = mounted / names.mount
    group = top / path.lstrip("/")
    # A container may see its own group as the top one, and its name as the machine has it.
    for folder in (group, *(above for above in group.parents if above.is_relative_to(top))):
        with suppress(OSError, ValueError, KeyError):
            limit, used = (int((folder / name).read_text()) for name in (names.limit, names.used))
            told = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            yield max(0, limit - used + sum(int(told[name]) for name in names.cache))
