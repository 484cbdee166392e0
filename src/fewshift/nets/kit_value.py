"""A kit: everything a method may be built from, as one value. `fewshift.nets.kit` reads and writes files."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from fewshift.core.precond import DomainPreconditioners
from fewshift.core.starts import Starts, task_start
from fewshift.errors import FewshiftError
from fewshift.nets.backbone import Backbone
from fewshift.nets.set_encoder import DatasetClassifier, FeatureClassifier
from fewshift.types import TaskParams


@dataclass(frozen=True)
class ImageSettings:
    """What the backbone expects of its images: the fields of a pixel rule, as plain data."""

    size: int = 84
    kind: Literal["protocol", "practical"] = "protocol"
    mean: tuple[float, float, float] = (0.5, 0.5, 0.5)  # on the scale [0, 1]
    std: tuple[float, float, float] = (0.5, 0.5, 0.5)
    crop: float | None = None
    filter: Literal["bilinear", "bicubic"] = "bilinear"
    rounded: bool = False


@dataclass(frozen=True)
class Part:
    """What one method learned for a kit's backbone: named tensors, and settings that JSON can say."""

    tensors: Mapping[str, Tensor]
    settings: Mapping[str, Any] = field(default_factory=dict)

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> Part:
        """The same part on another device, or in another type of number."""
        return replace(
            self, tensors={name: tensor.to(device, dtype) for name, tensor in self.tensors.items()}
        )


@dataclass(frozen=True)
class Kit:
    """A frozen backbone and what was learned for it, in parts that may be missing.

    `info` holds hyper-parameters and the protocol they were chosen under: anything that JSON can say.
    """

    backbone: Backbone
    images: ImageSettings = ImageSettings()
    preconditioners: DomainPreconditioners | None = None
    starts: Starts | None = None  # None: TSA's values for every domain
    classifier: DatasetClassifier | FeatureClassifier | None = None
    domains: tuple[str, ...] = ()  # in the order of coefficients; taken from the parts when not given
    info: Mapping[str, Any] = field(default_factory=dict)
    parts: Mapping[str, Part] = field(default_factory=dict)  # of methods other than TSP, by their names

    def __post_init__(self) -> None:
        for name, learned in (("preconditioners", self.preconditioners), ("starting values", self.starts)):
            if learned is None:
                continue
            if not self.domains:
                object.__setattr__(self, "domains", learned.domains)
            if learned.domains != self.domains:
                raise FewshiftError(
                    f"the kit's domains are {', '.join(self.domains)}, "
                    f"but its {name} are for {', '.join(learned.domains)}"
                )
        if self.classifier is not None and self.classifier.domains != len(self.domains):
            raise FewshiftError(
                f"the dataset classifier tells {self.classifier.domains} domains apart, "
                f"but the kit has {len(self.domains)}: {', '.join(self.domains) or 'none'}"
            )
        self._check_sites()

    @property
    def trained_on(self) -> tuple[str, ...]:
        """The domains that P or the backbone learned from, as far as the kit says."""
        told = self.info.get("backbone")
        known = told.get("domains", ()) if isinstance(told, Mapping) else ()
        return tuple(dict.fromkeys((*self.domains, *known)))

    def start(self, coefficients: Tensor | None = None) -> TaskParams:  # (K,)
        """The parameters a task starts from: the domains' starting values blended, or else TSA's."""
        usual = self.backbone.init()
        return usual if coefficients is None else task_start(usual, self.starts, coefficients, share=1.0)

    def to(self, device: torch.device | str) -> Kit:
        """The same kit on another device; this one stays where it is."""
        return replace(
            self,
            backbone=self.backbone.to(device),
            preconditioners=self.preconditioners and self.preconditioners.to(device),
            starts=self.starts and self.starts.to(device),
            classifier=self.classifier and copy.deepcopy(self.classifier).to(device),
            parts={name: part.to(device) for name, part in self.parts.items()},
        )

    def part(self, name: str, remedy: str) -> Part:
        """What the method `name` learned; where it learned nothing yet, `remedy` is the command for it."""
        if name not in self.parts:
            raise FewshiftError(f"the kit has nothing trained for {name}: run {remedy}")
        return self.parts[name]

    def with_(self, **changes: Any) -> Kit:
        """The kit with some parts replaced."""
        return replace(self, **changes)

    def _check_sites(self) -> None:
        start = self.backbone.init()
        roots = self.preconditioners.roots if self.preconditioners else {}
        shapes = self.starts.shapes() if self.starts else {}
        for site in (*roots, *shapes):
            if site not in start:
                raise FewshiftError(f"the kit has something for {site!r}, a site its backbone does not have")
        if roots and (bare := [site for site in start if site not in roots]):
            raise FewshiftError(
                f"the kit has no preconditioner for {bare[0]}, which its backbone adapts: "
                "give the backbone with the sites that the kit was trained with"
            )
        for site, root in roots.items():
            if root.shape[-1] != start[site].shape[0]:
                raise FewshiftError(
                    f"the preconditioner of {site} is for {root.shape[-1]} channels, "
                    f"but the backbone has {start[site].shape[0]} there"
                )
        for site, shape in shapes.items():
            if shape != start[site].shape:
                raise FewshiftError(
                    f"the starting values of {site} have shape {tuple(shape)}, "
                    f"but the backbone needs {tuple(start[site].shape)}"
                )
