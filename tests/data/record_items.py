"""Every image of a domain, and one flipped bit in a file."""

import os
from pathlib import Path

from fewshift.data.spec import Spec


def everything(spec: Spec) -> list[tuple[int, int]]:
    return [(c, i) for c in range(spec.classes) for i in range(spec.images_per_class[c])]


def damage(path: Path, at: int, keep_time: bool = False) -> None:
    before = path.stat()
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)
    if keep_time:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
