"""The nearest-centroid loss of the tasks that share a batch, with its gradient written out.

What labels and weights decide is computed when tasks are loaded, so that a step needs some twenty kernels.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fewshift.core.centroids import TINY, unit
from fewshift.nets.cells import Cells

MAX_WAY = 50  # the protocol's
FAR = -1e4  # added to the logits of classes that a task does not have: their share underflows to zero
SCALE = 10.0  # of the cosines


class Targets:
    """Whose centroids, which classes and which rows count, on buffers."""

    def __init__(self, cells: Cells, like: Tensor) -> None:
        shape = cells.shape

        def zeros(*size: int) -> Tensor:
            return torch.zeros(*size, dtype=like.dtype, device=like.device)

        self.cells = cells
        self.labels = torch.zeros(shape.cells, shape.cell, dtype=torch.int64, device=like.device)
        self.averages = zeros(shape.cells, shape.cell, MAX_WAY)  # a row's share in its class's centroid
        self.wanted = zeros(shape.cells, shape.cell, MAX_WAY)  # one-hot labels times weights
        self.weights = zeros(shape.cells, shape.cell, 1)  # a row's share in its task's loss
        self.far = zeros(shape.tasks, 1, MAX_WAY)

    def set(self, rows: Tensor, far: Tensor) -> None:  # (2, cells, n), (tasks, MAX_WAY)
        """Take the labels now in the buffer; rows that centroids are made of, and rows that are asked about.

        `rows` are 0 or 1. With the same ones in both the loss is L_in, with support and query it is L_out.
        """
        known, asked = rows[..., None]
        one_hot = self.labels[..., None] == torch.arange(MAX_WAY, device=rows.device)
        members = one_hot * known
        totals = self.cells.total(members.sum(dim=1, keepdim=True))
        self.averages.copy_(members / self.cells.spread(totals.clamp_min(1.0)))
        counts = self.cells.total(asked.sum(dim=1, keepdim=True))
        self.weights.copy_(asked / self.cells.spread(counts.clamp_min(1.0)))
        self.wanted.copy_(one_hot * self.weights)
        self.far.copy_(far[:, None])


def cell_losses(features: Tensor, targets: Targets) -> Tensor:  # (cells, n, d) -> (tasks,)
    """Mean cross-entropy of each task's rows against its centroids: the definition, differentiable twice."""
    cells = targets.cells
    centres = cells.spread(unit(cells.total(targets.averages.mT @ features)))
    logits = SCALE * (unit(features) @ centres.mT) + cells.spread(targets.far)
    return -cells.total((logits.log_softmax(dim=-1) * targets.wanted).sum(dim=(1, 2)))


def cell_gradients(
    pooled: Tensor, last: Tensor, targets: Targets
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # (cells, n, d), (cells, d, d)
    """Losses, logits, and the losses' gradients at the pooled activations and at each cell's last map."""
    cells = targets.cells
    features = pooled @ last.mT
    means = cells.total(targets.averages.mT @ features)
    size, mean_size = _inverse_length(features), _inverse_length(means)
    units, mean_units = features * size, means * mean_size
    centres = cells.spread(mean_units)
    logits = torch.baddbmm(cells.spread(targets.far), units, centres.mT, alpha=SCALE)
    shares = logits.log_softmax(dim=-1)
    losses = -cells.total((shares * targets.wanted).sum(dim=(1, 2)))
    slope = torch.addcmul(-targets.wanted, shares.exp_(), targets.weights).mul_(SCALE)
    at_means = _through_unit(cells.total(slope.mT @ units), mean_units, mean_size)
    at_units = _through_unit(slope @ centres, units, size)
    at_features = at_units.baddbmm_(targets.averages, cells.spread(at_means))
    return losses, logits, at_features @ last, at_features.mT @ pooled


def cell_accuracies(logits: Tensor, targets: Targets) -> Tensor:  # (cells, n, MAX_WAY) -> (tasks,)
    """The share of each task's rows whose largest logit is the label's, and no number is missing."""
    right = logits.argmax(dim=-1, keepdim=True) == targets.labels[..., None]
    right = right & logits.isfinite().all(dim=-1, keepdim=True)
    return targets.cells.total((right * targets.weights).sum(dim=(1, 2)))


def _inverse_length(vectors: Tensor) -> Tensor:
    return (vectors.square().sum(dim=-1, keepdim=True) + TINY).rsqrt_()


def _through_unit(gradient: Tensor, units: Tensor, size: Tensor) -> Tensor:
    """The derivative of x / |x|: what lies along x is lost, the rest is divided by the length."""
    along = (gradient * units).sum(dim=-1, keepdim=True)
    return torch.addcmul(gradient, units, along, value=-1).mul_(size)
