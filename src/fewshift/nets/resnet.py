"""The ResNet-18 of the published Meta-Dataset extractors, at any width.

It differs from the usual one: a 5x5 stem of stride 2 and no max-pooling. Parameter names are torchvision's,
so published checkpoints map by name. `last`, a linear map that stays at the identity while the extractor is
trained, is where pre-classifier alignment (PA) happens.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

STRIDES = (1, 2, 2, 2)
BLOCKS = 2


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with batch norm; the shortcut is a 1x1 projection where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample: nn.Module | None = None
        if stride != 1 or inputs != outputs:
            projection = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.downsample = nn.Sequential(projection, nn.BatchNorm2d(outputs))

    def forward(
        self, x: Tensor
    ) -> Tensor:  # (n, inputs, h, w) -> (n, outputs, ceil(h / stride), ceil(w / stride))
        """The block's activations."""
        shortcut = x if self.downsample is None else self.downsample(x)
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(y)) + shortcut)


class ResNet18(nn.Module):
    """Images to features of `8 * width` numbers.

    `stem_padding`: the published multi-domain extractors were trained with 2 (84 -> 42) and are tested with 1
    (84 -> 41); extractors trained here use 2 for both.
    """

    def __init__(self, width: int = 64, stem_padding: int = 2) -> None:
        super().__init__()
        self.width, self.stem_padding = width, stem_padding
        self.dim = 8 * width
        self.conv1 = nn.Conv2d(3, width, 5, stride=2, padding=stem_padding, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        widths = (width, width, 2 * width, 4 * width, 8 * width)
        stages = [_stage(widths[i], widths[i + 1], stride) for i, stride in enumerate(STRIDES)]
        self.layer1, self.layer2, self.layer3, self.layer4 = stages
        self.last = nn.Linear(self.dim, self.dim, bias=False)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        nn.init.eye_(self.last.weight)

    def forward(self, images: Tensor) -> Tensor:  # (n, 3, h, w) -> (n, dim)
        """The features of these images."""
        x = torch.relu(self.bn1(self.conv1(images)))
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = stage(x)
        features: Tensor = self.last(x.mean(dim=(2, 3)))
        return features


def _stage(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    first = BasicBlock(inputs, outputs, stride)
    return nn.Sequential(first, *(BasicBlock(outputs, outputs, 1) for _ in range(BLOCKS - 1)))


def block_names() -> tuple[str, ...]:
    """The eight residual blocks, from the image to the feature."""
    return tuple(f"layer{stage}.{block}" for stage in range(1, len(STRIDES) + 1) for block in range(BLOCKS))
