"""The handful of types everything else is written in.

Words used throughout: `way` (classes of a task), `shot` (support images of a class), `site` (a layer that
carries task parameters), `root` (M, from which a preconditioner is made), `design` (the function M -> P),
`rates` (step sizes by site), `coefficients` (the weights of the domains' preconditioners).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

if TYPE_CHECKING:  # a process that only reads images does without torch, which takes seconds and 150 MiB
    from torch import Tensor

Split: TypeAlias = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = ("train", "valid", "test")

Weights: TypeAlias = "Mapping[str, Tensor]"  # a frozen network, by parameter name
TaskParams: TypeAlias = "dict[str, Tensor]"  # theta: site -> (m, n)
Preconditioner: TypeAlias = "dict[str, Tensor]"  # P: site -> (m, m), symmetric positive definite
Rates: TypeAlias = Mapping[str, float]  # step size: site -> beta
Features: TypeAlias = "Callable[[TaskParams, Tensor], Tensor]"  # (theta, images) -> (n, d)
Predictor: TypeAlias = "Callable[[Tensor], Tensor]"  # images -> logits (n, way)
Design: TypeAlias = "Callable[[Tensor], Tensor]"  # roots (..., r, m) -> matrices (..., m, m)


@dataclass(frozen=True, slots=True)
class Labelled:
    """Images with their labels inside the task."""

    images: Tensor  # (n, 3, h, w) float
    labels: Tensor  # (n,) int64 in [0, way)


@dataclass(frozen=True, slots=True)
class Task:
    """All that an adaptation may look at (Eq. 2 without the domain label)."""

    support: Labelled
    way: int
    seen: bool | None = None  # was the domain trained on? None: the protocol does not reveal it


@dataclass(frozen=True, slots=True, order=True)
class Address:
    """The permanent name of a task: under one protocol it gives the same images on every machine."""

    seed: int
    domain: str
    split: Split
    index: int


@dataclass(frozen=True, slots=True)
class Episode:
    """A task with its query set. Meta-training and reports read the address; `Method.adapt` never sees it."""

    task: Task
    query: Labelled
    address: Address
    class_ids: tuple[int, ...]  # label -> absolute class id in the domain

    @property
    def domain(self) -> str:
        """The domain label d_T of Eq. 2."""
        return self.address.domain


@dataclass(frozen=True)
class Adapted:
    """A classifier for one task: call it on images to get logits; `notes` go into the result line."""

    logits: Predictor
    notes: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, images: Tensor) -> Tensor:  # (n, 3, h, w) -> (n, way)
        """The logits of these images."""
        return self.logits(images)


class Method(Protocol):
    """A few-shot method: support set in, classifier out, nothing kept."""

    @property
    def name(self) -> str:
        """The name in tables and on the command line."""
        ...

    def adapt(self, task: Task) -> Adapted:
        """A classifier for this task."""
        ...
