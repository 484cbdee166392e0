"""The set encoder, and the dataset classifier g on it: which training domains does a support set resemble?"""

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

    def code(self, images: Tensor) -> Tensor:  # (n, 3, h, w) -> (width,)
        """What is left of a set of images."""
        x = images
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = torch.relu(norm(conv(x)))
            if min(x.shape[-2:]) >= SMALLEST:
                x = F.max_pool2d(x, 2)
        return x.mean(dim=(2, 3)).mean(dim=0)

    def forward(self, images: Tensor) -> Tensor:  # (n, 3, h, w) -> (width,)
        """The set's code."""
        return self.code(images)


class DatasetClassifier(SetEncoder):
    """The code of a set, and a linear map from it to the training domains: Eq. 6."""

    def __init__(self, domains: int, width: int = 256) -> None:
        super().__init__(width)
        self.domains = domains
        self.head = nn.Linear(width, domains)

    def forward(self, images: Tensor) -> Tensor:  # (n, 3, h, w) -> (domains,)
        """The logits z of a set of images."""
        logits: Tensor = self.head(self.code(images))
        return logits
