"""Dataset classifiers g: which training domains does a support set resemble, by pixels or by features?"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LAYERS = 5
SMALLEST = 4  # maps are pooled down to 2x2 and no further: a set of one small image still has statistics


class SetEncoder(nn.Module):
    """Five convolutions, then the mean over pixels and over the set: CNAPs' task encoder, and FLUTE's.

    Batch norm always uses the statistics of the current set, in training and in use: domains differ so much
    that running averages would fit none of them. So a bias of the convolutions, which CNAPs has, would
    change nothing and is left out. Labels are not used.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        inputs = (3, *(width,) * (LAYERS - 1))
        self.convs = nn.ModuleList(nn.Conv2d(i, width, 3, padding=1, bias=False) for i in inputs)
        self.norms = nn.ModuleList(nn.BatchNorm2d(width, track_running_stats=False) for _ in inputs)

    def forward(self, images: Tensor) -> Tensor:  # (n, 3, h, w) -> (width,)
        """The code of a set of images."""
        x = images
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = torch.relu(norm(conv(x)))
            if min(x.shape[-2:]) >= SMALLEST:
                x = F.max_pool2d(x, 2)
        return x.mean(dim=(2, 3)).mean(dim=0)


class DatasetClassifier(SetEncoder):
    """The code of a set, and a linear map from it to the training domains: Eq. 6."""

    def __init__(self, domains: int, width: int = 256) -> None:
        super().__init__(width)
        self.domains = domains
        self.head = nn.Linear(width, domains)

    def forward(self, images: Tensor) -> Tensor:  # (n, 3, h, w) -> (domains,)
        """The logits z of a set of images."""
        logits: Tensor = self.head(super().forward(images))
        return logits


class FeatureClassifier(nn.Module):
    """The mean of a set's unit features, one hidden layer, the training domains' logits: our own.

    It stands where the paper has a set encoder that reads pixels (Eq. 6), for backbones that already know
    many kinds of images. Features below the last map are there anyway, so it costs nothing next to them, and
    it needs far fewer tasks to learn.
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
