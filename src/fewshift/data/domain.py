"""A domain: what it holds (`Spec`) and where its pixels come from (`ImageSource`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fewshift.data.spec import Spec

Pixels: TypeAlias = NDArray[np.uint8]  # (h, w, 3) RGB, or (h, w, 1) grey that stands for three equal channels
Item: TypeAlias = tuple[int, int]  # (class id, image index inside the class)
Role: TypeAlias = Literal["seen", "valid_unseen", "unseen"]


class ImageSource(Protocol):
    """Random access to the decoded images of a domain. Safe to call from many threads."""

    def read(self, items: Sequence[Item]) -> list[Pixels]:
        """The images at these places, in this order, at their native size."""
        ...


@dataclass(frozen=True)
class Provenance:
    """Where images come from and under which terms; printed by `fewshift data list`, kept beside the data."""

    origin: str = ""
    licence: str = "not stated"
    attribution: str = ""


@dataclass(frozen=True)
class Domain:
    """One domain of a suite."""

    spec: Spec
    source: ImageSource
    role: Role = "unseen"
    provenance: Provenance = Provenance()

    @property
    def name(self) -> str:
        """The domain's name, as in tables."""
        return self.spec.name
