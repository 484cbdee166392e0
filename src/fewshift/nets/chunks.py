"""Features of many images, some at a time, in batches of a few sizes."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor


def by_chunks(embed: Callable[[Tensor], Tensor], images: Tensor, chunk: int) -> Tensor:  # (n, ...) -> (n, d)
    """What `embed` gives for these images, at most `chunk` of them at a time.

    cuDNN plans every convolution again for each new batch size, which takes longer than a pass.
    So on a GPU a batch is filled up to the next of a few sizes, and what was filled in is dropped.
    """
    return torch.cat([_filled(embed, part) for part in torch.split(images, chunk)])


def _filled(embed: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
    count = len(images)
    missing = rounded(count) - count if images.device.type == "cuda" else 0
    if not missing:
        return embed(images)
    return embed(F.pad(images, [0, 0] * (images.ndim - 1) + [0, missing]))[:count]


def rounded(count: int) -> int:
    """The next whole number with at most three significant bits: at most a fifth is padding.

    >>> [rounded(count) for count in (5, 9, 100, 1000)]
    [5, 10, 112, 1024]
    """
    step = 1
    while count > 8 * step:
        step *= 2
    return -(-count // step) * step
