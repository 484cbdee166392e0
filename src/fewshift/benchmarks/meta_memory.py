"""Memory and time of the meta-gradient against the number of inner steps, one process per measurement.

fewshift bench meta --updates 0 --device cuda --width 64 --support 300 --query 100

All numbers are of a call that follows one of a single step, as in a training run: `memory_mib` is the peak
above the idle process (resident memory on the CPU, allocated memory on a GPU), `live_mib` the same with an
allocator that returns every block at once, so that fragmentation does not count, `saved_mib` the peak of the
tensors that autograd keeps, counted exactly, and `seconds` the call's time.
"""

from __future__ import annotations

import multiprocessing
import os
import weakref
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from fewshift.benchmarks.adapt import memory_bytes, now
from fewshift.core.losses import inner_objective, outer_objective
from fewshift.core.metagrad import meta_gradient
from fewshift.core.precond import initial_preconditioners
from fewshift.core.updates import Preconditioned
from fewshift.errors import FewshiftError
from fewshift.nets.backbone import Backbone, freeze
from fewshift.nets.resnet import ResNet18
from fewshift.types import Address, Episode, Labelled, Preconditioner, Rates, Task

MIB = 2**20
WAY = 10
How: TypeAlias = Literal["order 1", "order 2", "unrolled"]
HOWS: tuple[How, ...] = ("order 1", "order 2", "unrolled")
AT_ONCE = {"MALLOC_MMAP_THRESHOLD_": "65536"}  # glibc's: blocks of this size go back when they are freed


@dataclass(frozen=True)
class Setting:
    """The network and the task of all measurements."""

    device: str = "cpu"
    width: int = 16
    size: int = 84  # pixels a side
    support: int = 30
    query: int = 20


def run(**setting: Any) -> dict[str, Any]:
    """The table of peaks and the ratios of T = 5 to T = 1; `setting` as in `Setting`."""
    chosen = Setting(**setting)
    table = {f"{how}, T = {steps}": measured(chosen, how, steps) for how in HOWS for steps in (1, 5)}
    ratios = {
        f"{name}, {how}, T = 5 against T = 1": round(
            table[f"{how}, T = 5"][name] / table[f"{how}, T = 1"][name], 3
        )
        for how in HOWS
        for name in ("memory_mib", "live_mib", "saved_mib")
    }
    return {"setting": asdict(chosen) | {"torch": torch.__version__}, "measured": table, "ratios": ratios}


def measured(setting: Setting, how: How, steps: int) -> dict[str, float]:
    """All numbers of this many steps."""
    memory, seconds = _in_a_process(memory_and_time, setting, how, steps)
    os.environ.update(AT_ONCE)
    try:
        live, _ = _in_a_process(memory_and_time, setting, how, steps)
    finally:
        for name in AT_ONCE:
            del os.environ[name]
    saved = _in_a_process(saved_by_autograd, setting, how, steps)
    found = {"memory_mib": memory / MIB, "seconds": seconds, "live_mib": live / MIB, "saved_mib": saved / MIB}
    return {name: round(value, 2) for name, value in found.items()}


def _in_a_process(measure: Callable[[Setting, How, int], Any], *setting: Any) -> Any:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(measure, *setting).result()


def memory_and_time(setting: Setting, how: How, steps: int) -> tuple[int, float]:
    """Bytes above the idle process, and seconds; in this process."""
    call = work(setting, how)
    on_gpu = setting.device.startswith("cuda")
    before = torch.cuda.memory_allocated() if on_gpu else memory_bytes("VmRSS")
    call(1)
    if on_gpu:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    began = now(setting.device)
    call(steps)
    seconds = now(setting.device) - began
    peak = torch.cuda.max_memory_allocated() if on_gpu else memory_bytes("VmHWM")
    if peak is None or before is None:
        raise FewshiftError("on a CPU, memory is measured on Linux alone: give --no-memory")
    return peak - before, seconds


def saved_by_autograd(setting: Setting, how: How, steps: int) -> int:
    """Bytes of the tensors that are kept for backward passes, at most; in this process."""
    call, meter = work(setting, how), SavedBytes()
    with torch.autograd.graph.saved_tensors_hooks(meter.pack, lambda packed: packed[0]):
        call(steps)
    return meter.peak


class SavedBytes:
    """The tensors that autograd keeps for backward passes, in bytes."""

    def __init__(self) -> None:
        self.now = self.peak = 0

    def pack(self, tensor: Tensor) -> tuple[Tensor, SavedBytes._Token]:
        size = tensor.numel() * tensor.element_size()
        self.now += size
        self.peak = max(self.peak, self.now)
        token = self._Token()
        weakref.finalize(token, self._free, size)
        return tensor, token

    def _free(self, size: int) -> None:
        self.now -= size

    class _Token:
        pass


def work(setting: Setting, how: How) -> Callable[[int], object]:
    """One meta-gradient of so many inner steps, as a function of their number."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    backbone = freeze(ResNet18(setting.width)).to(setting.device)
    start, one = backbone.init(), episode(setting)
    sizes = {site: len(param) for site, param in start.items()}
    matrices = initial_preconditioners(("noise",), sizes).to(setting.device).of("noise")
    rates = dict.fromkeys(start, 0.1)
    if how == "unrolled":
        return lambda steps: unrolled(backbone, one, matrices, rates, steps)
    inner, outer = inner_objective(backbone, one.task), outer_objective(backbone, one)
    order: Literal[1, 2] = 2 if how == "order 2" else 1
    return lambda steps: meta_gradient(inner, outer, start, matrices, rates, steps, order)


def episode(setting: Setting) -> Episode:
    generator = torch.Generator().manual_seed(0)

    def drawn(count: int) -> Labelled:
        images = torch.randn(count, 3, setting.size, setting.size, generator=generator)
        return Labelled(images.to(setting.device), (torch.arange(count) % WAY).to(setting.device))

    task = Task(drawn(setting.support), WAY)
    return Episode(task, drawn(setting.query), Address(0, "noise", "train", 0), tuple(range(WAY)))


def unrolled(
    backbone: Backbone, one: Episode, matrices: Preconditioner, rates: Rates, steps: int
) -> list[Tensor]:
    """The plain way: one graph through all steps, then one backward pass."""
    inner, outer = inner_objective(backbone, one.task), outer_objective(backbone, one)
    matrices = {site: matrix.detach().requires_grad_() for site, matrix in matrices.items()}
    params = {site: param.requires_grad_() for site, param in backbone.init().items()}
    for _ in range(steps):
        found = torch.autograd.grad(inner(params), list(params.values()), create_graph=True)
        by_site = dict(zip(params, found, strict=True))
        params, _ = Preconditioned(matrices, rates).step(params, by_site, None)
    return list(torch.autograd.grad(outer(params), list(matrices.values())))
