"""Variants that exist to be compared with: builders for `fewshift evaluate --methods MODULE:FUNCTION`."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from fewshift.errors import FewshiftError
from fewshift.methods.coefficients import Coefficients
from fewshift.methods.tsp import TaskSpecificPreconditioning
from fewshift.methods.tsp import build as build_tsp
from fewshift.nets.engine import Engine
from fewshift.nets.kit import Kit


@dataclass(frozen=True)
class Likeliest:
    """All weight on the domain that a dataset classifier finds likeliest."""

    blend: Coefficients

    def __call__(self, images: Tensor) -> Tensor:  # (n, 3, h, w) -> (k,)
        """A one-hot vector; with one training domain its coefficient, which is no share."""
        found = self.blend(images)
        if found is None:
            raise FewshiftError("a hard label needs a kit with a dataset classifier: run train classifier")
        return found if len(found) == 1 else F.one_hot(torch.argmax(found), len(found)).to(found)


def hard_label(kit: Kit, engine: Engine | None = None, oracle: bool = True) -> TaskSpecificPreconditioning:
    """TSP† with the preconditioners of one domain instead of the blend of all."""
    tsp = build_tsp(kit, engine, oracle)
    return replace(tsp, coefficients=Likeliest(tsp.coefficients), name="tsp_hard_label")
