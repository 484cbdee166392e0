"""Proto-MAML's linear head: it starts as the nearest-centroid classifier and then moves with the network.

Triantafillou et al., ICLR 2020. ‖f − c‖² = ‖f‖² − (2c·f − ‖c‖²), and ‖f‖² is the same for all classes: so
weights 2c and biases −‖c‖² classify by squared distance to the centroids c (confirmed from code:
google-research/meta-dataset).
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from fewshift.core.centroids import prototypes
from fewshift.types import TaskParams

WEIGHT, BIAS = "task head.weight", "task head.bias"  # no network's own names, as head.weight may be


def proto_head(features: Tensor, labels: Tensor, way: int) -> TaskParams:  # (n, d), (n,) -> (way, d), (way,)
    """The head of these support features; differentiable in them."""
    centres = prototypes(features, labels, way)
    return {WEIGHT: 2 * centres, BIAS: -centres.square().sum(dim=1)}


def head_logits(params: TaskParams, features: Tensor) -> Tensor:  # (n, d) -> (n, way)
    """Logits of the head among these parameters."""
    return F.linear(features, params[WEIGHT], params[BIAS])
