"""A dataset classifier that reads features: our own, for backbones that already know many kinds of images."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class FeatureClassifier(nn.Module):
    """The mean of a set's unit features, one hidden layer, the training domains' logits.

    It stands where the paper has a set encoder that reads pixels (Eq. 6). Features below the last map are
    there anyway, so it costs nothing next to them, and it needs far fewer tasks to learn.
    """

    def __init__(self, domains: int, dim: int, width: int = 64) -> None:
        super().__init__()
        self.domains, self.dim, self.width = domains, dim, width
        self.hidden = nn.Linear(dim, width)
        self.head = nn.Linear(width, domains)

    def forward(self, features: Tensor) -> Tensor:  # (n, dim) -> (domains,)
        """The logits z of a set of features."""
        mean = F.normalize(features, dim=1).mean(dim=0) * self.dim**0.5
        logits: Tensor = self.head(torch.relu(self.hidden(mean)))
        return logits
