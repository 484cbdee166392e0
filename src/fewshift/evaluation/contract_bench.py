"""Made-up tasks to check a method on, how its answers are compared, and what it holds."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from fewshift.types import Labelled, Method, Task


class ContractBroken(AssertionError):
    """A method does what no method may do."""


@dataclass(frozen=True)
class Bench:
    """A method and the made-up tasks it is checked on."""

    method: Method
    size: int = 28  # pixels a side
    device: str = "cpu"
    dtype: torch.dtype = torch.float32
    tolerance: float = 0.02  # of logits after an adaptation, whose scale is 10: forty steps magnify rounding
    frozen: tuple[Tensor, ...] | None = None  # what must never change; None: all the method can reach

    def task(self, shots: list[int], seed: int = 0, seen: bool | None = None) -> tuple[Task, Tensor]:
        """A task of classes that can be told apart, with as many support images as said, and six queries."""
        generator = torch.Generator().manual_seed(seed)
        way = len(shots)
        # Coarse patterns: a network, even a random one, keeps them apart.
        coarse = torch.randn(way, 3, 4, 4, generator=generator)
        patterns = torch.nn.functional.interpolate(coarse, self.size, mode="bilinear", align_corners=False)
        labels = torch.repeat_interleave(torch.arange(way), torch.tensor(shots))
        queries = torch.arange(6) % way

        def noisy(classes: Tensor) -> Tensor:
            noise = torch.randn(len(classes), 3, self.size, self.size, generator=generator)
            return (patterns[classes] + 0.3 * noise).clamp(-1, 1).to(self.device, self.dtype)

        support = Labelled(noisy(labels), labels.to(self.device))
        return Task(support, way, seen), noisy(queries)

    def logits(self, task: Task, images: Tensor) -> Tensor:
        """Adapt and predict; the shape is checked and every number has to be finite."""
        found = self.method.adapt(task)(images)
        if found.shape != (len(images), task.way):
            raise ContractBroken(f"logits have shape {tuple(found.shape)}, not ({len(images)}, {task.way})")
        if not torch.isfinite(found).all():
            raise ContractBroken(f"logits of a task of {task.way} classes are not finite")
        return found

    def same(self, ours: Tensor, theirs: Tensor, what: str, tolerance: float | None = None) -> None:
        """Equal within the tolerance."""
        gap = (ours - theirs).abs().max().item()
        if not gap <= (self.tolerance if tolerance is None else tolerance):
            raise ContractBroken(f"{what}: logits differ by {gap:.2g}")

    def equal(self, ours: Tensor, theirs: Tensor, what: str) -> None:
        """Equal to the bit."""
        if not torch.equal(ours, theirs):
            raise ContractBroken(f"{what}: logits differ by {(ours - theirs).abs().max().item():.2g}")


def tensors_of(value: Any) -> Iterator[Tensor]:
    """The tensors that can be reached from a value: in fields, attributes, containers, modules, closures."""
    met: set[int] = set()
    waiting = [value]
    while waiting:
        found = waiting.pop()
        if id(found) in met:
            continue
        met.add(id(found))
        if isinstance(found, Tensor):
            yield found
        else:
            waiting += _inside(found)


def _inside(value: Any) -> list[Any]:
    if value is None or isinstance(value, str | bytes | int | float | type | ModuleType):
        return []
    if isinstance(value, Mapping):
        return list(value.values())
    if isinstance(value, list | tuple | set | frozenset):
        return list(value)
    if isinstance(value, nn.Module):
        return [*value.parameters(), *value.buffers()]
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, MethodType):
        return [value.__self__, value.__func__]
    if isinstance(value, FunctionType):
        return list(value.__closure__ or ())
    if isinstance(value, CellType):
        try:
            return [value.cell_contents]
        except ValueError:  # not filled yet
            return []
    slots = [getattr(value, f.name, None) for f in fields(value)] if is_dataclass(value) else []
    return [*slots, *getattr(value, "__dict__", {}).values()]
