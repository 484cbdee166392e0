"""Seconds and memory of a fit on the user's own images, each size in a fresh process.

fewshift bench fit --sizes 5,25,100,500 --json fit.json

Pictures are drawn, five classes. `times_ncc` is against a fit without adaptation in the same process;
`times_published` against the published 40 steps without choosing anything.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import torch

from fewshift.benchmarks.adapt import machine, matrix_product_rate, peak_mb
from fewshift.data.drawn.suite import drawn_domain
from fewshift.errors import FewshiftError
from fewshift.estimator.classifier import FewShotClassifier
from fewshift.nets.choice import computed_in
from fewshift.progress import Track, silent

WAY = 5
QUERIES = 32


def run(
    sizes: Sequence[int] = (5, 25, 100, 500),
    kit: str | None = None,
    method: str = "tsp",
    device: str = "cpu",
    precision: str = "auto",
    track: Track = silent,
    tell: Callable[[dict[str, Any]], None] = lambda row: None,
) -> dict[str, Any]:
    """Every size in a process of its own, one after the other; `tell` hears of each as it comes."""
    if min(sizes) < 2:
        raise FewshiftError(f"one of the sizes is {min(sizes)}: a fit takes two images at least, one a class")
    results = []
    for size in track(sizes, label="fit", total=len(sizes)):
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            results.append(pool.submit(_measured, size, kit, method, device, precision).result())
        tell(results[-1])
    settings = {"kit": kit or "default", "method": method, "way": WAY, "queries": QUERIES}
    return {"machine": machine(device, matrix_product_rate(device)), "settings": settings, "results": results}


def _measured(size: int, kit: str | None, method: str, device: str, precision: str) -> dict[str, Any]:
    way = min(WAY, size)
    source = drawn_domain("plants").source
    images = source.read([(place % way, place // way) for place in range(size)])
    labels = [place % way for place in range(size)]
    queries = source.read([(place % way, size // way + place // way) for place in range(QUERIES)])

    def fitted(method: str = method, settings: str = "auto") -> FewShotClassifier:
        classifier = FewShotClassifier(
            kit=kit, device=device, precision=precision, method=method, settings=settings, quiet=True
        )
        return classifier.fit(images, labels)

    fitted(method="ncc")  # loads the kit and wakes the libraries
    ncc = fitted(method="ncc").seconds_
    auto = fitted()
    # the most that this process has held so far, on the device where that is a GPU (else Linux only)
    on_gpu = device.startswith("cuda")
    peak = torch.cuda.max_memory_allocated(device) // 2**20 if on_gpu else peak_mb()
    published = fitted(settings="published").seconds_
    began = time.perf_counter()
    auto.predict(queries)
    return {
        "images": size,
        "precision": computed_in(auto.engine_),
        "seconds": round(auto.seconds_, 3),
        "steps": auto.settings_.steps,
        "times_ncc": round(auto.seconds_ / ncc, 1),
        "times_published": round(auto.seconds_ / published, 2),
        "predict_ms_an_image": round(1000 * (time.perf_counter() - began) / QUERIES, 2),
        "peak_mb": peak,
    }


def line(row: dict[str, Any]) -> str:
    """A result for people."""
    memory = "" if row["peak_mb"] is None else f"  {row['peak_mb']:>6} MB"
    return (
        f"{row['images']:>5} images  {row['seconds']:>8.2f} s ({row['steps']} steps)  "
        f"{row['times_published']:>5.2f}x published  {row['times_ncc']:>6.1f}x ncc  "
        f"{row['predict_ms_an_image']:>7.2f} ms a prediction{memory}"
    )
