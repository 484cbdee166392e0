"""A rate found inside the support set: tuned on some of its images, scored on the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch.nn.functional as F
from torch import Tensor

from fewshift.core.losses import accuracy
from fewshift.types import Labelled, Predictor, Task


def best_rate(
    task: Task,
    kept: Tensor,
    rates: Sequence[float],
    tuned: Callable[[Task, Sequence[float]], list[Predictor]],
) -> float:
    """The rate whose classifier of the kept support images gets most of the others right.

    Equals go to the rate that comes first, and so does a support set that can spare no image.
    """
    if bool(kept.all()):
        return rates[0]
    images, labels = task.support.images, task.support.labels
    few = Task(Labelled(images[kept], labels[kept]), task.way)
    scores = [float(accuracy(classify(images[~kept]), labels[~kept])) for classify in tuned(few, rates)]
    return rates[scores.index(max(scores))]


def place_in_class(labels: Tensor, way: int) -> Tensor:  # (n,) -> (n,) int64
    """How many samples of its class come before each. The classes' names play no part in it."""
    labels = labels.long()
    return F.one_hot(labels, way).cumsum(dim=0).gather(1, labels[:, None])[:, 0] - 1
