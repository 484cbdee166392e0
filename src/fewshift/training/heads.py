"""An extractor with one linear head per domain, and the loss they are trained by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fewshift.nets.resnet import ResNet18


class MultiHead(nn.Module):
    """A shared extractor; each domain's features go to a linear layer (with bias) over its TRAIN classes."""

    def __init__(self, net: ResNet18, classes: Sequence[int]) -> None:
        super().__init__()
        self.net = net
        self.net.last.requires_grad_(False)  # alignment starts at the identity
        self.heads = nn.ModuleList(nn.Linear(net.dim, count) for count in classes)

    def forward(self, images: Tensor, sizes: Sequence[int]) -> tuple[list[Tensor], list[Tensor]]:
        """Features and logits of each domain's slice, by one pass: batch norm sees all domains together."""
        slices = list(self.net(images).split(list(sizes)))
        return slices, [head(part) for head, part in zip(self.heads, slices, strict=True)]


def new_multi_head(classes: Mapping[str, int], width: int, stem_padding: int, seed: int) -> MultiHead:
    """Fresh weights that the seed alone decides; the global generator stays as it is."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return MultiHead(ResNet18(width, stem_padding), list(classes.values()))


def memory_layout(width: int, device: torch.device) -> torch.memory_format:
    """Channels last is faster, but oneDNN's gradient of a strided 1x1 convolution then writes out of bounds
    where its input has fewer than 16 channels (oneDNN issue 6035): narrow networks on a CPU do without."""
    return torch.contiguous_format if device.type == "cpu" and width < 16 else torch.channels_last


def summed_cross_entropy(
    logits: Sequence[Tensor], labels: Sequence[Tensor], counts: Sequence[int]
) -> Tensor:  # -> ()
    """Σ_k of the mean over domain k's whole batch of `counts` images, of which a process may hold a part."""
    parts = [
        F.cross_entropy(given.float(), wanted, reduction="sum") / count
        for given, wanted, count in zip(logits, labels, counts, strict=True)
    ]
    return torch.stack(parts).sum()
