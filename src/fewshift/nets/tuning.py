"""Who moves a network's own weights on a support set. `PlainTuning` is the definition."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from fewshift.core.centroids import cosine_logits, prototypes
from fewshift.core.descent import Trajectory, descend
from fewshift.core.losses import inner_objective
from fewshift.core.updates import Update
from fewshift.nets.backbone import Backbone
from fewshift.nets.whole import suited
from fewshift.types import Features, Task, TaskParams

Copies: TypeAlias = Callable[[], Iterator[Tensor]]  # a new descent's support images, varied, step after step
Rule: TypeAlias = Callable[[Iterable[str]], Update[Any]]  # the update of weights of these names, all alike


class Tuning(Protocol):
    """Descends from the weights as they are, and embeds images under others; keeps nothing of a task."""

    @property
    def name(self) -> str:
        """The name in results."""
        ...

    @property
    def backbone(self) -> Backbone:
        """The network, with those of its weights as task parameters that move."""
        ...

    def tune(
        self, task: Task, rules: Sequence[Rule], steps: int, copies: Copies | None = None
    ) -> list[Trajectory]:
        """A descent for each update rule, on L_in or, with copies, on their loss (`copies_loss`)."""
        ...

    def embed(self, params: TaskParams, images: Tensor) -> Tensor:  # (n, 3, h, w) -> (n, d)
        """Features under these weights, without gradients."""
        ...


@dataclass(frozen=True)
class PlainTuning:
    """The network as it is written down, differentiated by autograd."""

    backbone: Backbone
    name: str = "plain"

    def tune(
        self, task: Task, rules: Sequence[Rule], steps: int, copies: Copies | None = None
    ) -> list[Trajectory]:
        """One descent after the other."""
        task = replace(task, support=replace(task.support, images=suited(task.support.images)))

        def objective() -> Callable[[TaskParams], Tensor]:
            if copies is None:
                return inner_objective(self.backbone, task)
            varied = copies()
            return lambda params: copies_loss(self.backbone, params, task, suited(next(varied)))

        start = self.backbone.init()
        return [descend(objective(), start, rule(start), steps) for rule in rules]

    def embed(self, params: TaskParams, images: Tensor) -> Tensor:  # (n, 3, h, w) -> (n, d)
        """Features under these weights, without gradients."""
        return self.backbone.embed(suited(images), params)


def copies_loss(features: Features, params: TaskParams, task: Task, varied: Tensor) -> Tensor:
    """The loss of varied support images against the prototypes of the clean ones, by one joint pass."""
    images, labels = task.support.images, task.support.labels
    clean, other = features(params, torch.cat([images, varied])).chunk(2)
    return F.cross_entropy(cosine_logits(other, prototypes(clean, labels, task.way)), labels)
