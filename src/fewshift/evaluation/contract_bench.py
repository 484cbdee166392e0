"""Made-up tasks to check a method on, and how its answers are compared."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

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
