"""Proto-MAML's network: kernels and a linear head that move inside a task, norms that do not.

Triantafillou et al., ICLR 2020. Confirmed from code (google-research/meta-dataset): the head starts from the
prototypes, all kernels, W and b take the steps, scale and shift of the norms do not, norms use the support
set's moments for support and query.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from fewshift.core.proto_head import head_logits, proto_head
from fewshift.core.rules import Shape
from fewshift.nets.backbone import Backbone
from fewshift.nets.moments import JointFeatures, by_first_rows, by_own_moments, with_moments_of
from fewshift.nets.whole import every_weight, kernels, moving, suited
from fewshift.types import Episode, Predictor, Task, TaskParams, Weights

Norm: TypeAlias = Literal["support", "running"]
NORMS: tuple[Norm, ...] = ("support", "running")


@dataclass(frozen=True)
class FastNet:
    """What a task does to a network's weights; `weights` are those a task starts from, by name."""

    settled: Backbone  # its task parameters are its own weights
    own: Backbone | None  # the same by each call's own moments; None: running averages throughout
    joint: JointFeatures | None
    kernels: tuple[str, ...]
    dim: int

    def start(self, weights: Weights, task: Task) -> TaskParams:
        """The kernels as they are and the head of the support features; differentiable in the weights."""
        net = self.own or self.settled
        features = net(dict(weights), suited(task.support.images))
        head = proto_head(features, task.support.labels, task.way)
        return {name: weights[name] for name in self.kernels} | head

    def inner_objective(self, weights: Weights, task: Task) -> Callable[[TaskParams], Tensor]:
        """params -> mean cross-entropy of the support set by the head."""
        net, images = self.own or self.settled, suited(task.support.images)

        def loss(params: TaskParams) -> Tensor:
            features = net(self._merged(weights, params), images)
            return F.cross_entropy(head_logits(params, features), task.support.labels)

        return loss

    def query_logits(self, weights: Weights, params: TaskParams, episode: Episode) -> Tensor:  # -> (q, way)
        """Of the query images under adapted parameters, differentiable in them and in the weights."""
        support, query, merged = episode.task.support, episode.query, self._merged(weights, params)
        if self.joint is None:
            features = self.settled(merged, suited(query.images))
        else:
            first = len(support.labels)
            both = suited(torch.cat([support.images, query.images]))
            features = self.joint(merged, both, first)[first:]
        return head_logits(params, features)

    def predictor(self, weights: Weights, params: TaskParams, task: Task) -> Predictor:
        """Logits of any images under adapted parameters; nothing of the task is needed any more."""
        merged, settled = self._merged(weights, params), self.settled
        if self.own is not None:
            settled, _ = with_moments_of(settled, self.own, merged, task.support.images)

        @torch.no_grad()
        def logits(images: Tensor) -> Tensor:  # (n, 3, h, w) -> (n, way)
            return head_logits(params, settled.embed(images, merged))

        return logits

    def shape(self, weights: Weights, rate: float, steps: int) -> Shape:
        """What a rule has to fit."""
        return Shape({name: weights[name] for name in self.kernels}, self.dim, rate, steps)

    def _merged(self, weights: Weights, params: TaskParams) -> TaskParams:
        return {**weights, **{name: params[name] for name in self.kernels}}


def fast_net(backbone: Backbone, norm: Norm = "support") -> FastNet:
    """The network of a backbone, with all weights but the last map as what is meta-learned."""
    settled = moving(backbone, every_weight(backbone.net))
    if norm == "running":
        return FastNet(settled, None, None, kernels(backbone.net), backbone.dim)
    joint = by_first_rows(settled)
    return FastNet(settled, by_own_moments(settled), joint, kernels(backbone.net), backbone.dim)
