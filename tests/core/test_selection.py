"""SUR's and URT's shortcuts against the long vectors they stand for."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fewshift.core.centroids import cosine_logits, prototypes, unit
from fewshift.core.selection import extractor_centres, inner_products, weighted_cosine_logits
from fewshift.core.urt import attended, attention, initial_selector, selector_logits, selector_loss

EXTRACTORS, DIM, WAY = 4, 5, 3


def some_features(count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % WAY
    raw = torch.randn(count, EXTRACTORS, DIM, generator=generator, dtype=torch.float64)
    return unit(raw + labels[:, None, None]), labels


def test_weighted_cosines_equal_those_of_the_concatenation() -> None:
    features, labels = some_features(11)
    queries, _ = some_features(6, seed=1)
    weights = torch.rand(EXTRACTORS, dtype=torch.float64)
    centres = extractor_centres(features, labels, WAY)
    found = weighted_cosine_logits(weights, inner_products(queries, centres))
    long, long_queries = ((weights[:, None] * f).flatten(1) for f in (features, queries))
    expected = cosine_logits(long_queries, prototypes(long, labels, WAY))
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def some_selector(heads: int = 2, hidden: int = 7) -> dict[str, Tensor]:
    made = initial_selector(EXTRACTORS, DIM, heads, hidden, torch.Generator().manual_seed(2))
    return {name: t.double() * (1 if name == "temperature" else 300) for name, t in made.items()}


def test_attention_equals_questions_and_answers_with_a_bias() -> None:
    """Layer by layer, with the answers' bias that our weights leave out."""
    selector, (features, labels) = some_selector(), some_features(11)
    centres = extractor_centres(features, labels, WAY)
    columns = []
    for head in range(2):
        ask, answer = nn.Linear(EXTRACTORS * DIM, 7).double(), nn.Linear(DIM, 7).double()
        with torch.no_grad():
            ask.weight.copy_(selector["query"][head])
            ask.bias.copy_(selector["bias"][head])
            answer.weight.copy_(selector["key"][head])
        by_class = []
        for c in range(WAY):
            scores = [ask(centres[c].flatten()) @ answer(centres[c, k]) for k in range(EXTRACTORS)]
            by_class.append(torch.softmax(torch.stack(scores) / DIM**0.5, dim=0))
        columns.append(torch.stack(by_class).mean(dim=0))
    found = attention(selector, centres)
    torch.testing.assert_close(found, torch.stack(columns, dim=1), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(found.sum(dim=0), torch.ones(2).double())
    assert (found.max(dim=0).values > 0.3).all()  # the weights are large enough to prefer something


def test_centroids_of_attended_features_are_attended_centroids() -> None:
    selector, (features, labels) = some_selector(), some_features(11)
    queries, wanted = some_features(6, seed=1)
    centres = extractor_centres(features, labels, WAY)
    mix = attention(selector, centres)
    found = selector_logits(selector, mix, queries, centres)
    expected = cosine_logits(
        attended(queries, mix), prototypes(attended(features, mix), labels, WAY), scale=10.0
    )
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    entropy, apart, logits = selector_loss(selector, features, labels, WAY, queries, wanted)
    torch.testing.assert_close(logits, found)
    torch.testing.assert_close(entropy, F.cross_entropy(expected, wanted))
    torch.testing.assert_close(apart, torch.dist(mix.T @ mix, torch.eye(2).double()).square())


def test_heads_that_look_alike_are_told_apart_by_their_penalty() -> None:
    selector, (features, labels) = some_selector(), some_features(9)
    same = {n: t if n == "temperature" else t[:1].expand(2, *t.shape[1:]) for n, t in selector.items()}
    _, apart, _ = selector_loss(same, features, labels, WAY, features, labels)
    assert apart > 1e-2
