"""The dataset classifier g: which training domains does a support set resemble?"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LAYERS = 5
SMALLEST = 4  # maps are pooled down to 2x2 and no further: a set of one small image still has statistics


class DatasetClassifier(nn.Module):
    """Five convolutions, the mean over pixels and over the set, a linear map: Eq. 6.

    Batch norm always uses the statistics of the current set, in training and in use: domains differ so much
    that running averages would fit none of them. Labels are not used.
    """

    def __init__(self, domains: int, width: int = 256) -> None:
        super().__init__()
        self.domains, self.width = domains, width
        inputs = (3, *(width,) * (LAYERS - 1))
        self.convs = nn.ModuleList(nn.Conv2d(i, width, 3, padding=1, bias=False) for i in inputs)
        self.norms = nn.ModuleList(nn.BatchNorm2d(width, track_running_stats=False) for _ in inputs)
        self.head = nn.Linear(width, domains)

    def forward(self, images: Tensor) -> Tensor:  # (n, 3, h, w) -> (domains,)
        """The logits z of a set of images."""
        x = images
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = torch.relu(norm(conv(x)))
            if min(x.shape[-2:]) >= SMALLEST:
                x = F.max_pool2d(x, 2)
        logits: Tensor = self.head(x.mean(dim=(2, 3)).mean(dim=0))
        return logits
