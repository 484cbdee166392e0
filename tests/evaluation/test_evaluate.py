"""Identical tasks for every method, and honest numbers when a method breaks."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

from fewshift.errors import FewshiftError
from fewshift.evaluation.evaluate import Setting, evaluate
from fewshift.evaluation.scores import Key, from_line, to_line
from fewshift.types import Adapted, Address, Episode, Labelled, Task

WAY, QUERIES = 3, 6


def episode(index: int = 0, seen: bool | None = True) -> Episode:
    """Images of one pixel whose value is their label."""

    def part(count: int) -> Labelled:
        labels = torch.arange(count) % WAY
        return Labelled(labels.float().reshape(-1, 1, 1, 1).expand(-1, 3, 1, 1).contiguous(), labels)

    address = Address(0, "birds", "test", index)
    return Episode(Task(part(WAY), WAY, seen), part(QUERIES), address, (7, 8, 9))


def right(images: Tensor) -> Tensor:
    return torch.nn.functional.one_hot(images[:, 0, 0, 0].long(), WAY).float()


@dataclass(frozen=True)
class Fake:
    name: str = "fake"
    logits: Callable[[Tensor], Tensor] = right
    notes: dict[str, Any] = field(default_factory=dict)
    met: list[Task] = field(default_factory=list)

    def adapt(self, task: Task) -> Adapted:
        self.met.append(task)
        return Adapted(self.logits, self.notes)


def test_every_method_meets_the_same_task() -> None:
    one, two = Fake("one"), Fake("two")
    scores = list(evaluate([one, two], (episode(i) for i in range(3))))
    assert [(s.method, s.index) for s in scores] == [(m, i) for i in range(3) for m in ("one", "two")]
    assert all(a is b for a, b in zip(one.met, two.met, strict=True))
    assert {(s.accuracy, s.way, s.support, s.queries) for s in scores} == {(1.0, WAY, WAY, QUERIES)}
    assert all(s.seconds >= 0 and s.versions["torch"] for s in scores)


def test_a_score_does_not_wait_for_the_methods_behind_it() -> None:
    one, two = Fake("one"), Fake("two")
    assert next(evaluate([one, two], [episode()])).method == "one"
    assert not two.met


def test_accuracy_is_the_share_of_right_queries() -> None:
    first = Fake(logits=lambda images: torch.eye(WAY)[torch.zeros(len(images), dtype=torch.long)])
    (score,) = evaluate([first], [episode()])
    assert score.accuracy == pytest.approx(1 / 3)
    assert score.failure is None


def test_non_finite_logits_are_a_failure_not_a_lucky_guess() -> None:
    def broken(images: Tensor) -> Tensor:
        logits = right(images)
        logits[0] = torch.nan  # label 0: argmax of a row of nan would be 0, that is right
        logits[1, 0] = torch.inf
        return logits

    (score,) = evaluate([Fake(logits=broken)], [episode()])
    assert score.accuracy == pytest.approx(4 / 6)
    assert score.failure == "2 of 6 queries have logits that are not finite"
    assert from_line(to_line(score), "x:1") == score


def test_a_score_says_what_was_known_and_what_was_used() -> None:
    setting = Setting(protocol="varying", roles={"birds": "unseen"}, specs={"birds": "ab"}, kit="small")
    hidden = episode(seen=None)
    (score,) = evaluate([Fake(notes={"oracle": True})], [hidden], setting)
    assert (score.oracle, score.seen, score.role, score.revealed) == (True, False, "unseen", False)
    assert (score.protocol, score.spec, score.kit, score.device) == ("varying", "ab", "small", "cpu")
    (bare,) = evaluate([Fake()], [episode(seen=True)])
    assert (bare.oracle, bare.seen, bare.role, bare.revealed) == (False, True, None, True)


def test_notes_are_short_and_losses_kept_for_the_first_tasks_only() -> None:
    notes = {
        "oracle": True,
        "coefficients": {"birds": 1 / 3, "cars": 2 / 3},
        "losses": torch.tensor([1.0, 0.5]),
        "odd": float("nan"),
        "device": torch.device("cpu"),
    }
    scores = list(evaluate([Fake(notes=notes)], (episode(i) for i in range(3)), curves=2))
    assert scores[0].notes["coefficients"] == {"birds": 0.3333, "cars": 0.6667}
    assert scores[0].notes["odd"] is None
    assert "oracle" not in scores[0].notes
    assert ["losses" in s.notes for s in scores] == [True, True, False]
    assert scores[0].notes["losses"] == [1.0, 0.5]
    to_line(scores[0])  # nothing in it that JSON cannot say


def test_what_is_done_is_not_done_again() -> None:
    one, two = Fake("one"), Fake("two")
    done = {Key("one", "birds", "test", 0), Key("one", "birds", "test", 1), Key("two", "birds", "test", 1)}
    scores = list(evaluate([one, two], (episode(i) for i in range(3)), done=done))
    assert [(s.method, s.index) for s in scores] == [("two", 0), ("one", 2), ("two", 2)]
    assert len(one.met) == 1


def test_two_methods_of_one_name_and_wrong_shapes_are_refused() -> None:
    with pytest.raises(FewshiftError, match="two methods have one name"):
        next(evaluate([Fake(), Fake()], [episode()]))
    with pytest.raises(FewshiftError, match=r"fake gave logits of shape \(6, 2\)"):
        next(evaluate([Fake(logits=lambda images: right(images)[:, :2])], [episode()]))


def test_tensors_go_to_the_asked_device_and_stay_equal() -> None:
    fake = Fake()
    (score,) = evaluate([fake], [episode()], device="cpu")
    assert score.accuracy == 1.0
    assert torch.equal(fake.met[0].support.images, episode().task.support.images)


def test_methods_that_differ_in_tensors_only_are_told_apart() -> None:
    """Comparing them as values would ask a tensor whether it is true."""

    @dataclass(frozen=True)
    class Shifted:
        by: Tensor
        name: str

        def adapt(self, task: Task) -> Adapted:
            return Adapted(lambda images: images.flatten(1)[:, : task.way] + self.by)

    pair = [Shifted(torch.zeros(3), "first"), Shifted(torch.ones(3), "second")]
    found = list(evaluate(pair, [episode()]))
    assert [score.method for score in found] == ["first", "second"]
