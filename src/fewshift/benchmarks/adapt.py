"""Seconds an adaptation takes, by engine and support size, against the public-style loop in the same run.

fewshift bench adapt --sizes 25,100 --steps 40 --json adapt.json

Every engine gets the same task and Adadelta at TSA's rates. `tflops` counts the work a step needs by direct
convolution, the same for all engines: forward and input gradients of the 3x3 layers and projections, the
centre taps' weight gradients, no stem. `share` compares it with a large matrix product of the same precision
on the same machine. An engine's name may carry a precision: `graph float16`, `folded bfloat16`. The
public-style loop and the others run as torch does by default, where convolutions use TF32 on a GPU.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from fewshift.benchmarks import public_loop
from fewshift.core.centroids import cosine_logits, prototypes
from fewshift.core.updates import Adadelta, site_rates
from fewshift.errors import FewshiftError
from fewshift.nets.backbone import Backbone, freeze
from fewshift.nets.choice import choose_engine, computed_in
from fewshift.nets.engine import Engine
from fewshift.nets.precision import DEFAULT, ON_A_GPU, Precision, activations, arithmetic, precision_named
from fewshift.nets.resnet import STRIDES, ResNet18
from fewshift.progress import Track, silent
from fewshift.types import Labelled, Task

PUBLIC = "public"
RATES = (0.05, 0.1)  # TSA's, adapters and last map
QUERIES = 10  # per class
STATUS = Path("/proc/self/status")
REPEATS, LONG = 3, 10.0  # times, seconds
Run: TypeAlias = Callable[[], Callable[[Tensor], Tensor]]  # adapts, and returns the adapted features


def run(
    sizes: Sequence[int] = (5, 25, 100, 350, 500),
    steps: int = 40,
    width: int = 64,
    image_size: int = 84,
    device: str = "cpu",
    engines: Sequence[str] = (PUBLIC, "plain", "folded"),
    *,
    repeats: int | None = None,
    memory: bool = False,
    track: Track = silent,
) -> dict[str, Any]:
    """Each time is the best of `repeats`, taken in turns: other work on the machine only slows a run down.

    Without a number it is three, or one where the public loop takes longer than `LONG`.
    """
    net = lived_in_net(width, image_size).to(device)
    backbone = freeze(net)
    for name in engines:
        if name != PUBLIC:
            _engine(name, backbone)  # what cannot be had is said before anything is measured
    on_gpu = device.startswith("cuda")
    asked_for = {precision_named(asked) for _, _, asked in (name.partition(" ") for name in engines) if asked}
    wanted = ON_A_GPU if on_gpu else tuple({"float32": None, **dict.fromkeys(sorted(asked_for))})
    rates = {precision: matrix_product_rate(device, precision=precision) for precision in wanted}
    results = []
    for size in sizes:
        task, query = make_task(size, image_size, device)
        runs = {
            name: _adaptation(name, net, backbone, task, steps) for name in dict.fromkeys((PUBLIC, *engines))
        }
        found = {name: float("inf") for name in runs}
        features: dict[str, Callable[[Tensor], Tensor]] = {}
        most = len(runs) * (repeats or REPEATS)
        for name, adapt in track(_turns(runs, found, repeats), label=f"{size} images", total=most):
            start = now(device)
            features[name] = adapt()
            found[name] = min(found[name], now(device) - start)
        work = step_work(width, image_size, net.stem_padding) * size * steps / 1e12
        for name in engines:
            kind, _, asked = name.partition(" ")
            precision: Precision = precision_named(asked) if asked else ("tf32" if on_gpu else "float32")
            row: dict[str, Any] = {
                "size": size,
                "engine": kind,
                "precision": precision,
                "seconds": round(found[name], 4),
                "ratio": round(found[PUBLIC] / found[name], 3),
                "tflops": round(work / found[name], 4),
                "share": round(work / found[name] / rates[precision], 3),
                "accuracy": round(_accuracy(features[name], task, query), 4),
            }
            if memory:
                row["peak_mb"] = peak_memory(name, size, width, image_size)
            results.append(row)
    often = repeats or f"{REPEATS}, or 1 where the public loop takes over {LONG:g} s"
    settings = {"steps": steps, "width": width, "image_size": image_size, "repeats": often}
    return {"machine": machine(device, rates), "settings": settings, "results": results}


def machine(device: str, rates: Mapping[Precision, float] | float) -> dict[str, Any]:
    """Where the numbers come from."""
    cuda = device.startswith("cuda")
    if isinstance(rates, float):
        rates = {"float32": rates}
    return {
        "device": torch.cuda.get_device_name(device) if cuda else _cpu_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "matrix_product_tflops": rates,
    }


def lived_in_net(width: int, image_size: int) -> ResNet18:
    """A random network whose batch statistics are those of random images."""
    torch.manual_seed(0)
    net = ResNet18(width, stem_padding=1)
    with torch.no_grad():
        for _ in range(5):
            net(torch.randn(8, 3, image_size, image_size))
    return net.eval()


def make_task(size: int, image_size: int, device: str, number: int = 0) -> tuple[Task, Labelled]:
    """Classes around random mean images, with noise; one way for every ten images, five at least."""
    generator = torch.Generator().manual_seed(size + 1000 * number)
    way = min(50, max(min(5, size), size // 10))
    means = torch.randn(way, 3, image_size, image_size, generator=generator)

    def draw(labels: Tensor) -> Labelled:
        noise = torch.randn(len(labels), 3, image_size, image_size, generator=generator)
        return Labelled((0.5 * means[labels] + noise).to(device), labels.to(device))

    support = draw(torch.arange(size) % way)
    return Task(support, way), draw(torch.arange(way).repeat(QUERIES))


def step_work(width: int, image_size: int, stem_padding: int) -> int:
    """Floating-point operations that one step needs for one image, by direct convolution."""
    side = (image_size + 2 * stem_padding - 5) // 2 + 1
    channels, products = width, 0
    for stage, stride in enumerate(STRIDES):
        outputs = width * 2**stage
        side = -(-side // stride)
        pixels = side * side
        entry, inside = pixels * channels * outputs, pixels * outputs * outputs
        products += 2 * 9 * (entry + 3 * inside) + entry + 3 * inside  # forward, input gradient, centre taps
        if stride > 1:
            products += 2 * entry
        else:
            products -= 2 * 9 * entry - entry  # the very first layer: its frozen response is cached
        channels = outputs
    return 2 * (products + channels * channels)


def matrix_product_rate(device: str, size: int = 0, precision: Precision = "float32") -> float:
    """TFLOP/s of a large matrix product of random numbers."""
    size = size or (8192 if device.startswith("cuda") else 2048)
    a, b = torch.randn(2, size, size, device=device, dtype=activations(precision, torch.float32))
    best = float("inf")
    with arithmetic(precision):
        for _ in range(5):
            start = now(device)
            a @ b
            best = min(best, now(device) - start)
    return round(2 * size**3 / best / 1e12, 4)


def peak_memory(name: str, size: int, width: int, image_size: int) -> int | None:
    """Megabytes that a fresh CPU process needs at most while it adapts (Linux only)."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_peak_here, name, size, width, image_size).result()


def _peak_here(name: str, size: int, width: int, image_size: int) -> int | None:
    net = lived_in_net(width, image_size)
    task, _ = make_task(size, image_size, "cpu")
    _adaptation(name, net, freeze(net), task, steps=2)()
    return peak_mb()


def peak_mb() -> int | None:
    """The most megabytes that this process has held so far; None where the system does not say."""
    peak = memory_bytes("VmHWM")
    return None if peak is None else peak // 2**20


def memory_bytes(which: Literal["VmHWM", "VmRSS"]) -> int | None:
    """What this process has held at most, or holds now, in bytes; None where the system does not say."""
    # getrusage would do everywhere, but on Linux a child starts with its parent's peak.
    if not STATUS.is_file():
        return None
    lines = STATUS.read_text().splitlines()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(which)), None)


def _turns(
    runs: Mapping[str, Run], found: Mapping[str, float], repeats: int | None
) -> Iterator[tuple[str, Run]]:
    """Every engine once, again and again; `found` fills with their times meanwhile."""
    for _ in range(repeats or REPEATS):
        yield from runs.items()
        if repeats is None and found[PUBLIC] > LONG:
            return


def _adaptation(name: str, net: ResNet18, backbone: Backbone, task: Task, steps: int) -> Run:
    """A function that adapts to the task and returns the adapted features."""
    if name == PUBLIC:

        def public() -> Callable[[Tensor], Tensor]:
            copy = public_loop.PublicNet(net)
            public_loop.adapt(copy, task, steps, *RATES)
            return copy

        return public
    engine = _engine(name, backbone)
    start, update = backbone.init(), Adadelta(site_rates(backbone.sites, *RATES))

    def adapt() -> Callable[[Tensor], Tensor]:
        params = engine.adapt(task, start, update, steps).params
        return lambda images: engine.embed(params, images)

    return adapt


def _engine(name: str, backbone: Backbone) -> Engine:
    """The engine of this name, which computes in the precision that the name carries."""
    kind, _, precision = name.partition(" ")
    engine = choose_engine(backbone, kind, precision or DEFAULT)
    found = computed_in(engine)
    if precision not in ("", found):  # a row would say what was not computed
        raise FewshiftError(
            f"the engine {name!r} cannot be had here, {kind} computes in {found} on {backbone.device.type}: "
            f"give {kind} or '{kind} {found}'"
        )
    return engine


@torch.no_grad()
def _accuracy(features: Callable[[Tensor], Tensor], task: Task, query: Labelled) -> float:
    centres = prototypes(features(task.support.images), task.support.labels, task.way)
    logits = cosine_logits(features(query.images), centres)
    return (logits.argmax(1) == query.labels).float().mean().item()


def now(device: str) -> float:
    """The clock, when the device has done all it was asked."""
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":")[1].strip() for line in lines if "model name" in line]
    return names[0] if names else platform.processor() or platform.machine()


def table(outcome: dict[str, Any]) -> str:
    """The results for people."""
    lines = [json.dumps(outcome["machine"])]
    for row in outcome["results"]:
        extra = f"  {row['peak_mb']} MB" if row.get("peak_mb") else ""
        lines.append(
            f"{row['size']:>5} images  {row['engine']:<8} {row['precision']:<8} {row['seconds']:>8.3f} s  "
            f"{row['ratio']:>6.2f}x  "
            f"{row['tflops']:>8.3f} TFLOP/s ({row['share']:.0%})  accuracy {row['accuracy']:.3f}{extra}"
        )
    return "\n".join(lines)
