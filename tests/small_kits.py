"""A kit so small that fitting it takes a moment, with every part that a fit may use."""

from collections.abc import Sequence
from typing import Any

import torch

from fewshift.core.precond import initial_preconditioners
from fewshift.core.starts import DomainStarts
from fewshift.nets.backbone import freeze
from fewshift.nets.kit import ImageSettings, Kit
from fewshift.nets.resnet import ResNet18
from fewshift.nets.set_encoder import DatasetClassifier
from fewshift.types import TaskParams

SIZE = 32


def whole_small_kit(**more: Any) -> Kit:
    """Width 4 at 32 pixels, three domains, lived-in batch statistics."""
    torch.manual_seed(0)
    net = ResNet18(4, 1)
    with torch.no_grad():
        for _ in range(5):
            net(torch.randn(16, 3, SIZE, SIZE))
    backbone = freeze(net)
    sizes = {site: value.shape[0] for site, value in backbone.init().items()}
    return Kit(
        backbone,
        ImageSettings(size=SIZE),
        preconditioners=initial_preconditioners(("one", "two", "three"), sizes),
        classifier=DatasetClassifier(3, width=4).eval().requires_grad_(False),
        **more,
    )


def shared_start(domains: Sequence[str], start: TaskParams) -> DomainStarts:
    """The same starting values for every domain."""
    values = {site: value.detach().expand(len(domains), -1, -1).clone() for site, value in start.items()}
    return DomainStarts(tuple(domains), values)


def kit_with_starts(domains: Sequence[str], **more: Any) -> Kit:
    """Width 4, every part that descent from learned starting values needs."""
    torch.manual_seed(1)
    backbone = freeze(ResNet18(width=4))
    sizes = {site: len(value) for site, value in backbone.init().items()}
    return Kit(
        backbone,
        preconditioners=initial_preconditioners(tuple(domains), sizes, scale=0.3),
        starts=shared_start(domains, backbone.init()),
        classifier=DatasetClassifier(len(domains), width=4).eval().requires_grad_(False),
        **more,
    )
