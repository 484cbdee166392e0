"""The adaptation loop in the style of the public TSA code, re-implemented to be measured against.

Everything that costs time there is here: NCHW images, a separate 1x1 convolution beside each 3x3 one, batch
norm as layers, prototypes in a loop over classes, a cosine that materialises (n, way, d), loss and
predictions read back at every step, torch's Adadelta. A test shows that it computes what the engines do.
"""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fewshift.nets.resnet import BasicBlock, ResNet18
from fewshift.types import Task

START = 1e-4


class ParallelAdapter(nn.Module):
    """A frozen 3x3 convolution with a 1x1 convolution of the same stride beside it."""

    def __init__(self, conv: nn.Conv2d) -> None:
        super().__init__()
        self.conv = conv
        outputs, inputs = conv.weight.shape[:2]
        self.alpha = nn.Parameter(START * torch.eye(outputs, inputs).to(conv.weight)[:, :, None, None])

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x) + F.conv2d(x, self.alpha, stride=self.conv.stride)  # type: ignore[no-any-return]


class PublicNet(nn.Module):
    """A ResNet-18 with adapters attached as modules, and an alignment map behind it."""

    def __init__(self, net: ResNet18) -> None:
        super().__init__()
        self.backbone = copy.deepcopy(net).requires_grad_(False).eval()
        for block in [m for m in self.backbone.modules() if isinstance(m, BasicBlock)]:
            block.conv1, block.conv2 = ParallelAdapter(block.conv1), ParallelAdapter(block.conv2)  # type: ignore[assignment]
        self.backbone.last = nn.Identity()  # type: ignore[assignment]
        self.beta = nn.Parameter(torch.eye(net.dim).to(net.conv1.weight)[:, :, None, None])

    def forward(self, images: Tensor) -> Tensor:
        features = self.backbone(images)
        return F.conv2d(features[:, :, None, None], self.beta).flatten(1)

    def adapters(self) -> dict[str, nn.Parameter]:
        """The adapters by the name of the convolution they stand beside."""
        found = {n: m.alpha for n, m in self.named_modules() if isinstance(m, ParallelAdapter)}
        return {name.removeprefix("backbone."): alpha for name, alpha in found.items()}


def class_means(features: Tensor, labels: Tensor, way: int) -> Tensor:
    means = torch.zeros(way, features.shape[1], dtype=features.dtype, device=features.device)
    for label in range(way):
        means[label] = features[(labels == label).nonzero(as_tuple=False), :].mean(0)
    return means


def self_support_loss(features: Tensor, labels: Tensor) -> tuple[Tensor, float]:
    """The loss, and its value read back together with the predictions as the public loop does."""
    way = len(labels.unique())  # type: ignore[no-untyped-call]
    centres = class_means(features, labels, way)
    logits = 10 * F.cosine_similarity(features[:, None], centres[None], dim=-1, eps=1e-30)
    log_probabilities = F.log_softmax(logits, dim=1)
    predictions = log_probabilities.argmax(1)
    loss = F.nll_loss(log_probabilities, labels)
    value = loss.item()
    predictions.eq(labels).float().mean().item()
    predictions.cpu().numpy()
    labels.cpu().numpy()
    return loss, value


def adapt(net: PublicNet, task: Task, steps: int, rate: float, last_rate: float) -> list[float]:
    """Adapt the network in place and say the losses; each task needs a fresh network."""
    groups = [{"params": list(net.adapters().values())}, {"params": [net.beta], "lr": last_rate}]
    optimizer = torch.optim.Adadelta(groups, lr=rate)  # type: ignore[arg-type]
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        net.zero_grad()
        loss, value = self_support_loss(net(task.support.images), task.support.labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(value)
    return losses
