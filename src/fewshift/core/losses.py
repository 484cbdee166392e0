"""The two losses of a task, and the same as functions of the task's parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fewshift.core.centroids import cosine_logits, prototypes
from fewshift.types import Episode, Features, Task, TaskParams


class Scored(NamedTuple):
    """An outer loss with the accuracy that fell out of the same forward pass."""

    loss: Tensor  # ()
    accuracy: Tensor  # ()


def support_loss(features: Tensor, labels: Tensor, way: int) -> Tensor:  # (n, d), (n,), way -> ()
    """L_in: the support set classified by its own centroids, mean cross-entropy over samples.

    Gradients flow through both occurrences of the features. At one shot a sample is its own centroid, so the
    loss can only push classes apart.
    """
    return F.cross_entropy(cosine_logits(features, prototypes(features, labels, way)), labels)


def scored_queries(features: Tensor, episode: Episode) -> Scored:  # (n + q, d), support images first
    """L_out: the query set classified by the support set's centroids, which carry gradients too."""
    support, labels = episode.task.support, episode.query.labels
    count = len(support.labels)
    logits = cosine_logits(features[count:], prototypes(features[:count], support.labels, episode.task.way))
    return Scored(F.cross_entropy(logits, labels), accuracy(logits.detach(), labels))


def accuracy(logits: Tensor, labels: Tensor) -> Tensor:  # (n, way), (n,) -> ()
    """The share of rows whose largest logit is the label's; stays on the device.

    A row with a NaN is wrong, though its largest would be found in class 0.
    """
    right = (logits.argmax(dim=-1) == labels) & logits.isfinite().all(dim=-1)
    return right.to(torch.float32).mean()


def inner_objective(features: Features, task: Task) -> Callable[[TaskParams], Tensor]:
    """theta -> L_in(theta; S)."""
    support = task.support
    return lambda params: support_loss(features(params, support.images), support.labels, task.way)


def outer_objective(features: Features, episode: Episode) -> Callable[[TaskParams], Tensor]:
    """theta -> L_out(theta; S, Q), by one joint forward pass over S and Q."""
    scored = scored_outer_objective(features, episode)
    return lambda params: scored(params).loss


def scored_outer_objective(features: Features, episode: Episode) -> Callable[[TaskParams], Scored]:
    """Like `outer_objective`, with the query accuracy beside the loss at no further cost."""
    images = torch.cat([episode.task.support.images, episode.query.images])
    return lambda params: scored_queries(features(params, images), episode)
