"""Calibrated probabilities: the scale of the cosine at which held-out images are least surprising."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fewshift.estimator.trials import SCALE, HeldOut

SCALES = torch.logspace(math.log10(2.0), math.log10(200.0), 61)
PRIOR_IMAGES = 5.0  # the default scale weighs as much as so many held-out images a unit of log scale off


def calibrated_scale(found: HeldOut, default: float = SCALE) -> float:
    """The scale of least cross-entropy, drawn towards the default so that few images cannot say "certain"."""
    return float(SCALES[_penalised(found, default).argmin()])


def calibrated_losses(found: HeldOut) -> Tensor:  # (h,)
    """The cross-entropy of each held-out image at the calibrated scale: comparable between stops.

    At one fixed scale an adaptation that only spreads the cosines would look better than it is.
    """
    return found.losses(calibrated_scale(found))


def _penalised(found: HeldOut, default: float) -> Tensor:
    losses = torch.stack([found.losses(float(scale)).double().sum().cpu() for scale in SCALES])
    pull = PRIOR_IMAGES * (SCALES.double() / default).log().square()
    return losses + pull
