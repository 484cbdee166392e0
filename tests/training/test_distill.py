"""Centred kernel alignment, the prediction loss, and when teachers are asked."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from fewshift.core.kernels import rbf_gram
from fewshift.errors import FewshiftError
from fewshift.training.distill import Distillation, Teacher, cka_rbf, feature_loss, prediction_loss
from fewshift.training.students import Students


def features(n: int = 12, d: int = 6, seed: int = 0) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def direct_cka(first: Tensor, second: Tensor) -> float:
    """By loops and matrices of the definition."""
    n = len(first)
    centring = torch.eye(n, dtype=torch.float64) - 1 / n
    grams = []
    for rows in (first, second):
        distances = torch.tensor(
            [[float((a - b) @ (a - b)) for b in rows] for a in rows], dtype=torch.float64
        )
        kept = sorted(float(v) for v in distances.flatten() if v > 0)
        grams.append(centring @ torch.exp(-distances / (2 * kept[(len(kept) - 1) // 2])) @ centring)
    left, right = grams
    return float((left * right).sum() / math.sqrt(float((left**2).sum() * (right**2).sum())))


def test_alignment_is_its_definition() -> None:
    first, second = features(), features(d=9, seed=1)
    assert float(cka_rbf(first, second)) == pytest.approx(direct_cka(first, second), rel=1e-9)


def test_alignment_ignores_orthogonal_maps_scales_and_shifts() -> None:
    first, second = features(), features(seed=1)
    turn = torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64)).Q
    value = cka_rbf(first, second)
    for other in (second @ turn, 7.5 * second, second + 3, 0.01 * second @ turn - 2):
        assert float(cka_rbf(first, other)) == pytest.approx(float(value), abs=1e-9)


def test_identical_features_cost_nothing_and_others_cost_something() -> None:
    first = features()
    assert float(feature_loss(first, first)) == pytest.approx(0, abs=1e-12)
    assert float(feature_loss(first, features(seed=5))) > 0.05


@pytest.mark.parametrize("n", [4, 5, 16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradients_are_finite(n: int, dtype: torch.dtype) -> None:
    student = features(n).to(dtype).requires_grad_()
    feature_loss(student, features(n, seed=1).to(dtype)).backward()
    assert student.grad is not None
    assert student.grad.isfinite().all()
    assert student.grad.abs().sum() > 0


def test_equal_rows_do_not_break_it() -> None:
    same = torch.ones(5, 3, requires_grad=True)
    feature_loss(same, torch.randn(5, 3)).backward()
    assert same.grad is not None
    assert same.grad.isfinite().all()


def test_the_bandwidth_is_a_constant() -> None:
    rows = features().requires_grad_()
    gram = rbf_gram(rows)
    variance = (((rows[0] - rows[1]) ** 2).sum() / (-2 * torch.log(gram[0, 1]))).detach()
    (found,) = torch.autograd.grad(gram[0, 1], rows)
    pull = -gram[0, 1] * (rows[0] - rows[1]) / variance
    wanted = torch.zeros_like(rows)  # the median's own rows, too, unless they are these
    wanted[0], wanted[1] = pull, -pull
    torch.testing.assert_close(found, wanted)


def test_the_prediction_loss_is_a_scaled_divergence() -> None:
    student, teacher = features(8, 5), features(8, 5, seed=2)
    given, wanted = (student / 4).softmax(1), (teacher / 4).softmax(1)
    direct = 16 * (wanted * (wanted.log() - given.log())).sum(1).mean()
    torch.testing.assert_close(prediction_loss(student, teacher, 4.0), direct)
    assert float(prediction_loss(teacher, teacher, 4.0)) == pytest.approx(0, abs=1e-12)


def test_weights_fade_to_nothing() -> None:
    plan = Distillation(weights={"a": 4.0}, horizons={"a": 10}, default_horizon=5)
    assert [plan.weight("a", t) for t in (0, 5, 10, 11)] == [4.0, 2.0, 0.0, 0.0]
    assert [plan.weight("b", t) for t in (0, 4, 5)] == [1.0, pytest.approx(0.2), 0.0]
    with pytest.raises(FewshiftError, match="horizon of a is 0"):
        Distillation(horizons={"a": 0})


class Counting(nn.Module):
    """A network that knows how often it was asked."""

    asked = 0

    def forward(self, images: Tensor) -> Tensor:
        type(self).asked += 1
        return images.mean(dim=(2, 3)).repeat(1, 2)


def test_expired_teachers_are_not_asked() -> None:
    teachers = {name: Teacher(Counting(), nn.Linear(6, 3)) for name in ("short", "long")}
    plan = Distillation(horizons={"short": 2, "long": 4})
    students = Students(teachers, {"short": 3, "long": 3, "alone": 7}, 8, plan, 0, torch.device("cpu"))
    images, counts = [torch.randn(5, 3, 8, 8)] * 3, [5, 5, 5]
    found, logits = [torch.randn(5, 8)] * 3, [torch.randn(5, 3), torch.randn(5, 3), torch.randn(5, 7)]
    asked = []
    for step in range(5):
        Counting.asked = 0
        loss = students.loss(step, images, found, logits, counts)
        asked.append(Counting.asked)
        assert (loss.item() == 0) == (step == 4)
    assert asked == [2, 2, 1, 1, 0]


@torch.no_grad()
def test_the_loss_is_both_parts_times_what_is_left_of_a_domains_weight() -> None:
    torch.manual_seed(1)
    teachers = {name: Teacher(Counting(), nn.Linear(6, 3)) for name in ("a", "b")}
    plan = Distillation(weights={"a": 4.0}, horizons={"a": 10}, default_horizon=5, temperature=3.0)
    students = Students(teachers, dict.fromkeys("ab", 3), 8, plan, 0, torch.device("cpu"))
    images, found, logits = ([torch.randn(5, *size) for _ in "ab"] for size in ((3, 8, 8), (8,), (3,)))
    wanted = 0.0
    for name, weight, image, feature, said in zip("ab", (4 * 0.7, 0.4), images, found, logits, strict=True):
        known = teachers[name].net(image)
        adapted = feature @ students.adaptors[name].weight.T
        rows = (x / x.norm(dim=1, keepdim=True) for x in (adapted, known))
        alignment = direct_cka(*(x.double() for x in rows))
        wanted += weight * (1 - alignment + float(prediction_loss(said, teachers[name].head(known), 3.0)))
    total = students.loss(3, images, found, logits, [5, 5])
    assert float(total) == pytest.approx(wanted, rel=1e-4)


def test_teachers_must_fit() -> None:
    teacher = Teacher(Counting(), nn.Linear(6, 3))
    with pytest.raises(FewshiftError, match="tells 3 classes apart and the domain has 4"):
        Students({"a": teacher}, {"a": 4}, 8, Distillation(), 0, torch.device("cpu"))
    with pytest.raises(FewshiftError, match="no domain to teach"):
        Students({"b": teacher}, {"a": 3}, 8, Distillation(), 0, torch.device("cpu"))
