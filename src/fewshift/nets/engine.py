"""Who runs the inner loop. Engines differ in speed alone: `PlainEngine` is the definition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor

from fewshift.core.descent import Trajectory, descend
from fewshift.core.losses import inner_objective
from fewshift.core.updates import Update
from fewshift.errors import FewshiftError
from fewshift.nets.backbone import Backbone
from fewshift.nets.folded_resnet import FoldedResNet, SupportFeatures, folded_resnet
from fewshift.nets.precision import Precision
from fewshift.nets.threads import suited_threads
from fewshift.types import Task, TaskParams


class Engine(Protocol):
    """Adapts task parameters on a support set and embeds images under them; keeps nothing of a task."""

    @property
    def name(self) -> str:
        """The name in results and on the command line."""
        ...

    @property
    def backbone(self) -> Backbone:
        """The network that is adapted."""
        ...

    def adapt(self, task: Task, start: TaskParams, update: Update[Any], steps: int) -> Trajectory:
        """`steps` steps of `update` from `start` on L_in. Sites missing in `start` stay frozen."""
        ...

    def adapt_many(
        self, tasks: Sequence[Task], starts: Sequence[TaskParams], updates: Sequence[Update[Any]], steps: int
    ) -> list[Trajectory]:
        """The same for several tasks, each as if it were alone."""
        ...

    def embed(self, params: TaskParams, images: Tensor) -> Tensor:  # (n, 3, h, w) -> (n, d)
        """Features under these parameters, without gradients."""
        ...

    def embed_many(
        self, params: Sequence[TaskParams], images: Sequence[Tensor]
    ) -> list[Tensor]:  # (n, 3, h, w) each -> (n, d) each
        """The same for the images of several tasks, each under its own parameters."""
        ...


class InTurn:
    """Engines that take one task after the other."""

    def adapt_many(
        self: Engine,
        tasks: Sequence[Task],
        starts: Sequence[TaskParams],
        updates: Sequence[Update[Any]],
        steps: int,
    ) -> list[Trajectory]:
        """One task after the other."""
        return [self.adapt(*each, steps) for each in zip(tasks, starts, updates, strict=True)]

    def embed_many(
        self: Engine, params: Sequence[TaskParams], images: Sequence[Tensor]
    ) -> list[Tensor]:  # (n, 3, h, w) each -> (n, d) each
        """One task's images after the other's."""
        return [self.embed(*each) for each in zip(params, images, strict=True)]


class AroundEngine:
    """An engine around another: it changes how tasks get to that one, and passes on the rest."""

    engine: Engine

    @property
    def name(self) -> str:
        """The inner engine's."""
        return self.engine.name

    @property
    def backbone(self) -> Backbone:
        """The network that is adapted."""
        return self.engine.backbone

    def adapt(self, task: Task, start: TaskParams, update: Update[Any], steps: int) -> Trajectory:
        """As one of many."""
        return self.adapt_many([task], [start], [update], steps)[0]

    def adapt_many(
        self, tasks: Sequence[Task], starts: Sequence[TaskParams], updates: Sequence[Update[Any]], steps: int
    ) -> list[Trajectory]:
        """As the inner engine does."""
        return self.engine.adapt_many(tasks, starts, updates, steps)

    def embed(self, params: TaskParams, images: Tensor) -> Tensor:  # (n, 3, h, w) -> (n, d)
        """Features under these parameters, without gradients."""
        return self.engine.embed(params, images)

    def embed_many(
        self, params: Sequence[TaskParams], images: Sequence[Tensor]
    ) -> list[Tensor]:  # (n, 3, h, w) each -> (n, d) each
        """As the inner engine does."""
        return self.engine.embed_many(params, images)


@dataclass(frozen=True)
class PlainEngine(InTurn):
    """The definition: the network as it is written down, differentiated by autograd."""

    backbone: Backbone
    name: str = "plain"

    def adapt(self, task: Task, start: TaskParams, update: Update[Any], steps: int) -> Trajectory:
        """`steps` steps of `update` from `start` on L_in."""
        check_sites(self.backbone, start)
        return descend(inner_objective(self.backbone, task), start, update, steps)

    def embed(self, params: TaskParams, images: Tensor) -> Tensor:  # (n, 3, h, w) -> (n, d)
        """Features under these parameters, without gradients."""
        return self.backbone.embed(images, params)


@dataclass(frozen=True)
class FoldedEngine(InTurn):
    """Adapter and batch norm folded into the kernels, the derivative by hand, channels-last.

    In `bfloat16` the convolutions of the descent take numbers of 16 bits; parameters, loss and the features
    of `embed` stay exact. All other precisions are those of the weights.
    """

    backbone: Backbone
    name: str = "folded"
    precision: Precision = "float32"

    @cached_property
    def net(self) -> FoldedResNet:
        """The folded weights, made once."""
        return folded_resnet(self.backbone)

    @cached_property
    def descended(self) -> FoldedResNet:
        """The folded weights that a descent uses."""
        return folded_resnet(self.backbone, torch.bfloat16) if self.precision == "bfloat16" else self.net

    def adapt(self, task: Task, start: TaskParams, update: Update[Any], steps: int) -> Trajectory:
        """`steps` steps of `update` from `start` on L_in."""
        check_sites(self.backbone, start)
        images = task.support.images
        with suited_threads(2 * self.net.operations(images), images.device):
            features = SupportFeatures(self.descended, images, tuple(start))
            objective = inner_objective(lambda params, _images: features(params), task)
            return descend(objective, start, update, steps)

    def embed(self, params: TaskParams, images: Tensor) -> Tensor:  # (n, 3, h, w) -> (n, d)
        """Features under these parameters, without gradients."""
        with suited_threads(self.net.operations(images), images.device):
            return self.net.features(params, images)


def check_sites(backbone: Backbone, params: TaskParams) -> None:
    """Refuse parameters for layers that the backbone does not adapt."""
    unknown = [site for site in params if site not in backbone.sites]
    if unknown:
        raise FewshiftError(
            f"the backbone has no site {', '.join(unknown)}: it adapts {', '.join(backbone.sites)}"
        )
