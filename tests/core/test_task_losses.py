import pytest
import torch
import torch.nn.functional as F
from tiny_problem import tiny_problem

from fewshift.core.centroids import cosine_logits, prototypes
from fewshift.core.coefficients import task_coefficients
from fewshift.core.losses import (
    accuracy,
    inner_objective,
    outer_objective,
    scored_outer_objective,
    scored_queries,
    support_loss,
)
from fewshift.core.objectives import classifier_loss


def by_hand(support: torch.Tensor, labels: torch.Tensor, asked: torch.Tensor, way: int) -> torch.Tensor:
    centres = torch.stack([support[labels == j].mean(dim=0) for j in range(way)])
    return 10 * F.cosine_similarity(asked[:, None], centres[None], dim=-1)


def test_losses_are_cross_entropies_of_cosines() -> None:
    episode = tiny_problem().episode
    labels, asked_labels = episode.task.support.labels, episode.query.labels
    support, asked = (torch.randn(len(found), 4, dtype=torch.float64) for found in (labels, asked_labels))
    torch.testing.assert_close(
        support_loss(support, labels, 3), F.cross_entropy(by_hand(support, labels, support, 3), labels)
    )
    logits = by_hand(support, labels, asked, 3)
    scored = scored_queries(torch.cat([support, asked]), episode)
    torch.testing.assert_close(scored.loss, F.cross_entropy(logits, asked_labels))
    assert scored.accuracy == accuracy(logits, asked_labels)


def test_gradients_of_both_losses_flow_through_the_centroids() -> None:
    episode = tiny_problem().episode
    labels, asked_labels = episode.task.support.labels, episode.query.labels
    features = torch.randn(len(labels) + len(asked_labels), 4, dtype=torch.float64).requires_grad_()
    support, asked = features[: len(labels)], features[len(labels) :]
    for found, logits, wanted in (
        (support_loss(support, labels, 3), by_hand(support, labels, support, 3), labels),
        (scored_queries(features, episode).loss, by_hand(support, labels, asked, 3), asked_labels),
    ):
        pairs = (torch.autograd.grad(loss, features)[0] for loss in (found, F.cross_entropy(logits, wanted)))
        torch.testing.assert_close(*pairs)


def test_one_shot_can_only_push_classes_apart() -> None:
    features = torch.randn(5, 4, dtype=torch.float64)
    logits = cosine_logits(features, prototypes(features, torch.arange(5), 5))
    torch.testing.assert_close(logits.diagonal(), torch.full((5,), 10.0, dtype=torch.float64))


def test_accuracy_counts() -> None:
    logits = torch.tensor([[1.0, 2.0], [3.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    assert accuracy(logits, torch.tensor([1, 0, 0, 1])).item() == 0.75
    logits[1:3, 1] = torch.nan
    assert accuracy(logits, torch.tensor([1, 0, 0, 1])).item() == 0.5
    logits[3, 1] = torch.nan  # the label's own column, where the largest would be found
    assert accuracy(logits, torch.tensor([1, 0, 0, 1])).item() == 0.25


def test_objectives_are_the_losses_of_the_networks_features() -> None:
    problem = tiny_problem()
    support, query = problem.task.support, problem.episode.query
    inner = problem.features(problem.start, support.images)
    outer = problem.features(problem.start, query.images)
    torch.testing.assert_close(
        inner_objective(problem.features, problem.task)(problem.start), support_loss(inner, support.labels, 3)
    )
    expected = scored_queries(torch.cat([inner, outer]), problem.episode)
    torch.testing.assert_close(
        outer_objective(problem.features, problem.episode)(problem.start), expected.loss
    )
    scored = scored_outer_objective(problem.features, problem.episode)(problem.start)
    torch.testing.assert_close(scored, expected)


@pytest.mark.parametrize("domain", range(4))
def test_the_classifiers_loss_is_cross_entropy_plus_the_auxiliary(domain: int) -> None:
    logits = torch.randn(4, dtype=torch.float64)
    expected = F.cross_entropy(logits[None], torch.tensor([domain])) + 0.1 * 3.0
    torch.testing.assert_close(classifier_loss(logits, domain, torch.tensor(3.0), 0.1), expected)
    torch.testing.assert_close(classifier_loss(logits, domain, torch.tensor(3.0)), expected)


def test_one_domain_has_a_sigmoid_and_its_logarithm() -> None:
    logits = torch.tensor([-1.3], dtype=torch.float64)
    torch.testing.assert_close(task_coefficients(logits), torch.sigmoid(logits))
    zero = torch.zeros((), dtype=torch.float64)
    torch.testing.assert_close(classifier_loss(logits, 0, zero), -torch.sigmoid(logits[0]).log())


def test_several_domains_share_one() -> None:
    logits = torch.randn(8, dtype=torch.float64)
    coefficients = task_coefficients(logits)
    torch.testing.assert_close(coefficients.sum().item(), 1.0)
    torch.testing.assert_close(coefficients, torch.softmax(logits, 0))
