"""URL's distillation: in each domain the student's features and predictions follow a frozen teacher's.

Li et al. 2021, with the constants of its public code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch.nn.functional as F
from torch import Tensor, nn

from fewshift.core.kernels import centred, rbf_gram
from fewshift.errors import FewshiftError
from fewshift.training.refusals import above_zero


@dataclass(frozen=True)
class Teacher:
    """A frozen single-domain network with its head, both in evaluation mode."""

    net: nn.Module
    head: nn.Linear
    images: Mapping[str, str] = field(default_factory=dict)  # `images_of` its run, as far as that told


@dataclass(frozen=True, kw_only=True)
class Distillation:
    """What distillation adds to the multi-domain loss; domains not named get the `default_…`."""

    weights: Mapping[str, float] = field(default_factory=dict)  # lambda_k, for both losses
    horizons: Mapping[str, int] = field(default_factory=dict)  # T_k: the step from which w_k is 0
    default_weight: float = 1.0
    default_horizon: int = 48_000
    temperature: float = 4.0
    adaptor_rate: float = 0.1  # Adam's; looks wrong and is what was published
    adaptor_weight_decay: float = 5e-4

    def __post_init__(self) -> None:
        for name, horizon in {**self.horizons, "default": self.default_horizon}.items():
            if horizon < 1:
                raise FewshiftError(f"distillation: the horizon of {name} is {horizon}: give 1 step or more")
        above_zero("distillation: the temperature", self.temperature)

    def weight(self, domain: str, step: int) -> float:
        """w_k(t)·lambda_k = max(0, 1 - t / T_k)·lambda_k; 0 means that the teacher need not be asked."""
        horizon = self.horizons.get(domain, self.default_horizon)
        return max(0.0, 1 - step / horizon) * self.weights.get(domain, self.default_weight)


def feature_loss(adapted: Tensor, teacher: Tensor) -> Tensor:  # (n, d), (n, e) -> ()
    """1 - CKA of the row-normalised features."""
    return 1 - cka_rbf(F.normalize(adapted), F.normalize(teacher))


def prediction_loss(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:  # (n, c), (n, c) -> ()
    """T²·KL(softmax(teacher / T) ‖ softmax(student / T)), mean over rows."""
    wanted = (teacher / temperature).log_softmax(dim=1)
    given = (student / temperature).log_softmax(dim=1)
    return F.kl_div(given, wanted, reduction="batchmean", log_target=True) * temperature**2


def cka_rbf(first: Tensor, second: Tensor) -> Tensor:  # (n, d), (n, e) -> ()
    """Centred kernel alignment of two sets of features of the same n images, with Gaussian kernels.

    1 when one is the other up to an orthogonal map, a shift and a common scale.
    """
    left, right = centred(rbf_gram(first)), centred(rbf_gram(second))
    cross = (left * right).sum()
    norms = [(gram * gram).sum().clamp_min(1e-24).sqrt() for gram in (left, right)]
    return cross / (norms[0] * norms[1])
