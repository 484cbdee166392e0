"""Tiny domains of coloured patterns, a tiny frozen network, and settings that take a second."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fewshift.core.precond import DomainPreconditioners, initial_preconditioners
from fewshift.data.domain import Domain, Item, Pixels
from fewshift.data.pixels import PixelRule
from fewshift.data.protocol import Protocol
from fewshift.data.resident import ResidentDomain, resident
from fewshift.data.spec import flat_spec
from fewshift.nets.adapters import ResidualAdapters
from fewshift.nets.backbone import Backbone, freeze
from fewshift.nets.resnet import ResNet18
from fewshift.training.augment import Augmentation
from fewshift.training.loop import Watch
from fewshift.training.settings import (
    BackboneSettings,
    ClassifierSettings,
    InnerLevel,
    PreconditionerSettings,
)

SIZE = 28
RULE = PixelRule(SIZE, "protocol")
PROTOCOL = Protocol(min_way=5, max_way=5, max_query=2, max_support=10, max_contribution=2)
WATCH = Watch(log_every=2, checkpoint_every=2)


@dataclass(frozen=True)
class Patterns:
    """A smooth pattern a class, drawn with noise: learnable, and different in every domain."""

    seed: int
    grey: bool = False
    noise: float = 60.0

    def read(self, items: Sequence[Item]) -> list[Pixels]:
        return [self._image(*item) for item in items]

    def _image(self, class_id: int, image: int) -> Pixels:
        channels = 1 if self.grey else 3
        coarse = np.random.default_rng([self.seed, class_id]).uniform(0, 255, (7, 7, channels))
        noise = np.random.default_rng([self.seed, class_id, image]).normal(0, 1, (SIZE, SIZE, channels))
        pattern = coarse.repeat(4, axis=0).repeat(4, axis=1)
        return np.clip(pattern + self.noise * noise, 0, 255).astype(np.uint8)


def pattern_domain(name: str, seed: int, *, grey: bool = False, images: int = 12) -> Domain:
    names = tuple(f"{name}{c}" for c in range(20))
    spec = flat_spec(name, names, (images,) * 20, {"train": 10, "valid": 5, "test": 5})
    return Domain(spec, Patterns(seed, grey), "seen")


def two_domains() -> dict[str, ResidentDomain]:
    domains = [pattern_domain("red", 1), pattern_domain("grey", 2, grey=True)]
    return {domain.name: resident(domain, RULE, splits=("train", "valid")) for domain in domains}


class TwoSites(nn.Module):
    """A convolution and the last map: all that meta-training needs, in a hundredth of the time."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, 2, padding=1, bias=False)
        self.last = nn.Linear(8, 8, bias=False)
        nn.init.eye_(self.last.weight)

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.last(torch.relu(self.conv(images)).amax(dim=(2, 3)))
        return features


def tiny_backbone(dtype: torch.dtype = torch.float32) -> Backbone:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return freeze(TwoSites().to(dtype), ResidualAdapters(("conv",)))


def resnet_backbone() -> Backbone:
    """A random network whose batch norms have seen some noise, so that features are of ordinary size."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = ResNet18(width=4)
        with torch.no_grad():
            for _ in range(20):
                net(torch.randn(16, 3, SIZE, SIZE))
    return freeze(net)


def some_preconditioners(backbone: Backbone, domains: tuple[str, ...]) -> DomainPreconditioners:
    """Different ones for every domain."""
    sizes = {site: len(value) for site, value in backbone.init().items()}
    first = initial_preconditioners(domains, sizes, dtype=backbone.dtype)
    generator = torch.Generator().manual_seed(1)
    noise = {
        s: 0.3 * torch.randn(r.shape, generator=generator, dtype=r.dtype) for s, r in first.roots.items()
    }
    return replace(first, roots={site: root + noise[site] for site, root in first.roots.items()})


def backbone_settings(**changes: Any) -> BackboneSettings:
    usual = {"updates": 4, "default_batch": 8, "period": 4, "width": 4, "validation_tasks": 2}
    return BackboneSettings(**{**usual, "augmentation": Augmentation(pad=2), **changes})


def preconditioner_settings(**changes: Any) -> PreconditionerSettings:
    usual = {"updates": 4, "tasks_per_update": 2, "period": 4, "validation_tasks": 1, "validation_steps": 2}
    return PreconditionerSettings(**{**usual, "inner": InnerLevel(steps=2), "spectrum_every": 2, **changes})


def classifier_settings(**changes: Any) -> ClassifierSettings:
    usual = {"updates": 4, "tasks_per_update": 2, "period": 4, "width": 4, "validation_tasks": 1}
    return ClassifierSettings(**{**usual, "inner": InnerLevel(steps=2), **changes})
