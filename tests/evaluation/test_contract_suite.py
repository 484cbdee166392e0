"""The contract lets a sound method through and stops each kind of unsound one by the right check."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

from fewshift.errors import FewshiftError
from fewshift.evaluation.contract import CHECKS, ContractBroken, check_method
from fewshift.types import Adapted, Task


def checked(task: Task) -> None:
    labels = task.support.labels
    if not task.support.images.is_floating_point():
        raise FewshiftError("integer images")
    if len(task.support.images) != len(labels) or torch.unique(labels).tolist() != list(range(task.way)):
        raise FewshiftError("labels")


@dataclass(frozen=True)
class Sound:
    """Nearest mean after a linear map. Faults are put in by the fields."""

    weight: Tensor = field(default_factory=lambda: torch.eye(3))
    name: str = "sound"
    check: Callable[[Task], None] = checked
    before: Callable[["Sound", Task], None] = lambda method, task: None
    after: Callable[[Tensor, Task], Tensor] = lambda logits, task: logits
    notes: Callable[[Task], dict[str, Any]] = lambda task: {"oracle": False}

    def features(self, images: Tensor) -> Tensor:
        return torch.nn.functional.adaptive_avg_pool2d(images, 4).transpose(1, 3).reshape(-1, 3) @ self.weight

    def adapt(self, task: Task) -> Adapted:
        self.check(task)
        self.before(self, task)
        flat = self.features(task.support.images).reshape(len(task.support.images), -1)
        means = torch.stack([flat[task.support.labels == c].mean(0) for c in range(task.way)])

        def logits(images: Tensor) -> Tensor:
            found = self.features(images).reshape(len(images), -1)
            return self.after(-((found[:, None] - means[None]) ** 2).mean(2), task)

        return Adapted(logits, self.notes(task))


def test_a_sound_method_passes_every_check() -> None:
    passed = check_method(Sound())
    assert passed.checks == tuple(check.__name__ for check in CHECKS)
    assert str(passed) == "sound passed 15 checks"


def spoil(method: Sound, task: Task) -> None:
    task.support.images.clamp_(-0.5, 0.5)


def remember(memory: list[Task]) -> Callable[[Tensor, Task], Tensor]:
    def after(logits: Tensor, task: Task) -> Tensor:
        if not any(task is old for old in memory):
            memory.append(task)
        return logits + len(memory)

    return after


def reveal(logits: Tensor, task: Task) -> Tensor:
    return logits * (2 if task.seen else 1)


UNSOUND = {
    "has a name": Sound(name="a,b"),
    "same task twice gives the same numbers": Sound(after=lambda z, task: z + torch.rand(())),
    "a task leaves no trace": Sound(after=remember([])),
    "the task stays as it is": Sound(before=spoil),
    "relabelling permutes logits": Sound(after=lambda z, task: z + torch.arange(task.way)),
    "queries do not see each other": Sound(after=lambda z, task: z - z.mean(0)),
    "one shot works": Sound(after=lambda z, task: z / (len(task.support.labels) - task.way)),
    "two ways work": Sound(after=lambda z, task: z / (task.way - 2)),
    "fifty ways work": Sound(after=lambda z, task: z[:, :49]),
    "no graph is left": Sound(weight=torch.eye(3, requires_grad=True)),
    "adapts without gradients too": Sound(after=lambda z, task: z + torch.is_grad_enabled()),
    "the oracle is owned up to": Sound(after=reveal),
    "bad tasks fail with a clear word": Sound(check=lambda task: None),
}


@pytest.mark.parametrize("check", UNSOUND)
def test_each_fault_is_found_by_its_check(check: str) -> None:
    with pytest.raises(ContractBroken) as broken:
        check_method(UNSOUND[check])
    assert f"“{check}”" in str(broken.value)


def test_weights_that_change_a_little_now_and_then_are_caught() -> None:
    def grow(method: Sound, task: Task) -> None:
        method.weight[0, 0] += 1e-6 if task.seen is not None else 0  # only where the protocol reveals `seen`

    with pytest.raises(ContractBroken, match="frozen weights stay"):
        check_method(Sound(before=grow))


def test_a_method_may_use_the_oracle_if_it_says_so() -> None:
    owned = Sound(after=reveal, notes=lambda task: {"oracle": task.seen is not None})
    assert len(check_method(owned).checks) == len(CHECKS)
    with pytest.raises(ContractBroken, match="though the task does not reveal it"):
        check_method(Sound(notes=lambda task: {"oracle": True}))


def test_a_method_without_tensors_cannot_be_watched() -> None:
    @dataclass(frozen=True)
    class Empty:
        name: str = "empty"

        def adapt(self, task: Task) -> Adapted:
            checked(task)
            return Adapted(lambda images: torch.zeros(len(images), task.way))

    with pytest.raises(ContractBroken, match="no tensor can be reached"):
        check_method(Empty())


def test_an_error_inside_a_check_names_the_check() -> None:
    def fail(method: Sound, task: Task) -> None:
        if task.way == 50:
            raise RuntimeError("too many")

    with pytest.raises(ContractBroken, match="sound, “fifty ways work”: RuntimeError: too many"):
        check_method(Sound(before=fail))
