"""Recording work on fixed buffers as a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import torch

from fewshift.nets.notices import say_once
from fewshift.nets.precision import changing_settings

T = TypeVar("T")

WARM_UP = 3  # runs before a capture, so that libraries have chosen their algorithms
TRIED = 10  # algorithms of cuDNN that are tried out for each convolution


def captured(run: Callable[[], None], pool: Any, device: torch.device) -> torch.cuda.CUDAGraph:
    """Record what `run` does to its buffers on a device. It runs some times first: load them afterwards.

    cuDNN tries its algorithms out and the fastest is recorded, unless results must repeat to the bit. Streams
    belong to a device: a capture on another one than the buffers' would record nothing, without an error.
    """
    with changing_settings, torch.cuda.device(device):
        before = torch.backends.cudnn.benchmark, torch.backends.cudnn.benchmark_limit
        torch.backends.cudnn.benchmark = before[0] or not torch.are_deterministic_algorithms_enabled()
        torch.backends.cudnn.benchmark_limit = TRIED
        try:
            side = _side_stream(torch.cuda.current_device())
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(WARM_UP):
                    run()
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool, stream=side, capture_error_mode="thread_local"):
                run()
        finally:
            torch.backends.cudnn.benchmark, torch.backends.cudnn.benchmark_limit = before
    return graph


@cache
def _side_stream(_device: int) -> torch.cuda.Stream:
    """One for all captures on the current device: a pool's memory goes only to captures on its own stream.

    So graphs of one pool work in the same memory. None needs what it left there: results are in buffers.
    """
    return torch.cuda.Stream()  # type: ignore[no-untyped-call]


def kept_or_made(kept: dict[Any, T], key: Any, make: Callable[[], T]) -> T:
    """What is kept under a key, made where it is new; if the GPU's memory is full, the others are dropped."""
    if key in kept:
        return kept[key]
    try:
        kept[key] = make()
    except torch.OutOfMemoryError:
        if not kept:
            raise
    if key not in kept:  # outside of `except`, whose traceback holds what the failed attempt had allocated
        say_once("the GPU's memory is full of graphs: they are dropped, and made again when needed")
        kept.clear()
        torch.cuda.empty_cache()
        kept[key] = make()
    return kept[key]
