"""Memory and time of the meta-gradient against the number of inner steps, one process per measurement.

    python -m fewshift.benchmarks.meta_memory                                   # a narrow network on the CPU
    python -m fewshift.benchmarks.meta_memory --device cuda --width 64 --support 300 --query 100

Prints one JSON object. All numbers are of a call that follows one of a single step, as in a training run:
`memory_mib` is the peak above the idle process (resident memory on the CPU, allocated memory on a GPU),
`live_mib` the same with an allocator that returns every block at once, so that fragmentation does not count,
`saved_mib` the peak of the tensors that autograd keeps, counted exactly, and `seconds` the call's time.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from fewshift.core.losses import inner_objective, outer_objective
from fewshift.core.metagrad import meta_gradient
from fewshift.core.precond import initial_preconditioners
from fewshift.core.updates import Preconditioned
from fewshift.nets.backbone import Backbone, freeze
from fewshift.nets.resnet import ResNet18
from fewshift.types import Address, Episode, Labelled, Preconditioner, Rates, Task

MIB = 2**20
WAY = 10
COUNTS = ("memory", "live", "saved")
HOWS = ("order 1", "order 2", "unrolled")


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


def episode(arguments: argparse.Namespace) -> Episode:
    generator = torch.Generator().manual_seed(0)

    def drawn(count: int) -> Labelled:
        images = torch.randn(count, 3, arguments.size, arguments.size, generator=generator)
        return Labelled(images.to(arguments.device), (torch.arange(count) % WAY).to(arguments.device))

    task = Task(drawn(arguments.support), WAY)
    return Episode(task, drawn(arguments.query), Address(0, "noise", "train", 0), tuple(range(WAY)))


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


def work(arguments: argparse.Namespace) -> Callable[[int], object]:
    torch.manual_seed(0)
    backbone = freeze(ResNet18(arguments.width)).to(arguments.device)
    start, one = backbone.init(), episode(arguments)
    sizes = {site: len(param) for site, param in start.items()}
    matrices = initial_preconditioners(("noise",), sizes).to(arguments.device).of("noise")
    rates = dict.fromkeys(start, 0.1)
    if arguments.how == "unrolled":
        return lambda steps: unrolled(backbone, one, matrices, rates, steps)
    inner, outer = inner_objective(backbone, one.task), outer_objective(backbone, one)
    order: Literal[1, 2] = 2 if arguments.how == "order 2" else 1
    return lambda steps: meta_gradient(inner, outer, start, matrices, rates, steps, order)


def measure(arguments: argparse.Namespace) -> dict[str, float]:
    """One measurement, in this process."""
    torch.set_num_threads(1)
    call = work(arguments)
    if arguments.count == "saved":
        meter = SavedBytes()
        with torch.autograd.graph.saved_tensors_hooks(meter.pack, lambda packed: packed[0]):
            call(arguments.steps)
        return {"saved_mib": meter.peak / MIB}
    on_gpu = arguments.device.startswith("cuda")
    before = torch.cuda.memory_allocated() if on_gpu else resident_bytes()
    call(1)
    if on_gpu:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    call(arguments.steps)
    if on_gpu:
        torch.cuda.synchronize()
    seconds = time.perf_counter() - began
    peak = torch.cuda.max_memory_allocated() if on_gpu else peak_resident_bytes()
    if arguments.count == "live":
        return {"live_mib": (peak - before) / MIB}
    return {"memory_mib": (peak - before) / MIB, "seconds": seconds}


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def peak_resident_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def in_a_process(arguments: argparse.Namespace, how: str, steps: int) -> dict[str, float]:
    passed = [
        f"--{name}={getattr(arguments, name)}" for name in ("device", "width", "size", "support", "query")
    ]
    found: dict[str, float] = {}
    for count in COUNTS:
        command = [
            sys.executable,
            "-m",
            "fewshift.benchmarks.meta_memory",
            *passed,
            f"--how={how}",
            f"--steps={steps}",
            f"--count={count}",
        ]
        environment = os.environ | ({"MALLOC_MMAP_THRESHOLD_": "65536"} if count == "live" else {})
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
        found |= json.loads(done.stdout)
    return {name: round(value, 2) for name, value in found.items()}


def run(**setting: Any) -> dict[str, Any]:
    """The table of peaks and the ratios of T = 5 to T = 1; settings as on the command line."""
    arguments = _parser().parse_args([f"--{name}={value}" for name, value in setting.items()])
    table = {f"{how}, T = {steps}": in_a_process(arguments, how, steps) for how in HOWS for steps in (1, 5)}
    ratios = {
        f"{name}, {how}, T = 5 against T = 1": round(
            table[f"{how}, T = 5"][name] / table[f"{how}, T = 1"][name], 3
        )
        for how in HOWS
        for name in ("memory_mib", "live_mib", "saved_mib")
    }
    shape = {name: getattr(arguments, name) for name in ("device", "width", "size", "support", "query")}
    return {"setting": shape | {"torch": torch.__version__}, "measured": table, "ratios": ratios}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="One measurement in this process.")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--size", type=int, default=84)
    parser.add_argument("--support", type=int, default=30)
    parser.add_argument("--query", type=int, default=20)
    parser.add_argument("--how", choices=HOWS)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--count", choices=COUNTS, default="memory")
    return parser


if __name__ == "__main__":
    print(json.dumps(measure(_parser().parse_args())))
