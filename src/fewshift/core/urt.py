"""URT, the universal representation transformer: attention of a task's classes over K extractors.

With p_{c,k} the mean unit feature of class c under extractor k, each head asks q_c = W_q [p_{c,1} … p_{c,K}]
+ b, answers W_k p_{c,k}, and scores softmax_k(q_c · W_k p_{c,k} / √d); the mean over classes is A, (K, H).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from fewshift.core.centroids import cosine_logits
from fewshift.core.selection import extractor_centres


def initial_selector(
    extractors: int, dim: int, heads: int, hidden: int, generator: torch.Generator
) -> dict[str, Tensor]:
    """Fresh weights: products from N(0, 0.001²), the bias as in `torch.nn.Linear`, a temperature of 10.

    A bias of the answers would be the same number for every extractor, so softmax could not see it: there is
    none.
    """
    inputs = extractors * dim
    return {
        "query": 1e-3 * torch.randn(heads, hidden, inputs, generator=generator),
        "bias": (2 * torch.rand(heads, hidden, generator=generator) - 1) / math.sqrt(inputs),
        "key": 1e-3 * torch.randn(heads, hidden, dim, generator=generator),
        "temperature": torch.tensor(10.0),
    }


def attention(selector: Mapping[str, Tensor], centres: Tensor) -> Tensor:  # (way, k, d) -> (k, heads)
    """A: how much each head takes of each extractor for this task; columns sum to 1.

    q · (W_k p) is computed as (q W_k) · p: one product per class and head, where the answers would be K.
    """
    questions = torch.einsum("hae,ce->hca", selector["query"], centres.flatten(1)) + selector["bias"][:, None]
    asked = torch.einsum("hca,had->hcd", questions, selector["key"])
    scores = torch.einsum("hcd,ckd->hck", asked, centres) / math.sqrt(centres.shape[2])
    return scores.softmax(dim=-1).mean(dim=1).T


def attended(features: Tensor, mix: Tensor) -> Tensor:  # (n, k, d), (k, heads) -> (n, heads·d)
    """Each head's sum over extractors, laid end to end."""
    return torch.einsum("nkd,kh->nhd", features, mix).flatten(1)


def selector_logits(
    selector: Mapping[str, Tensor], mix: Tensor, queries: Tensor, centres: Tensor
) -> Tensor:  # (k, heads), (n, k, d), (way, k, d) -> (n, way)
    """Cosine to the centroids of attended features times the learned temperature.

    Attending is linear, so the centroids of attended features are the attended centroids.
    """
    return selector["temperature"] * cosine_logits(attended(queries, mix), attended(centres, mix), 1.0)


def selector_loss(
    selector: Mapping[str, Tensor], support: Tensor, labels: Tensor, way: int, queries: Tensor, wanted: Tensor
) -> tuple[Tensor, Tensor, Tensor]:  # (n, k, d), (n,), way, (q, k, d), (q,) -> (), (), (q, way)
    """Cross-entropy of the queries, ‖AᵀA − I‖² that keeps heads apart, and the logits."""
    centres = extractor_centres(support, labels, way)
    mix = attention(selector, centres)
    logits = selector_logits(selector, mix, queries, centres)
    apart = mix.T @ mix - torch.eye(mix.shape[1], dtype=mix.dtype, device=mix.device)
    return torch.nn.functional.cross_entropy(logits, wanted), apart.square().sum(), logits
