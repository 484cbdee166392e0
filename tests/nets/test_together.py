"""What several threads ask an engine for runs as one batch, and each gets its own."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from fewshift.core.descent import Trajectory
from fewshift.core.updates import Preconditioned, Update, site_rates
from fewshift.nets.backbone import Backbone
from fewshift.nets.engine import PlainEngine
from fewshift.nets.together import Together
from fewshift.types import Task, TaskParams

Make = Callable[..., Backbone]
MakeTask = Callable[..., Task]


@dataclass(frozen=True)
class Counting(PlainEngine):
    """How many tasks came at a time."""

    batches: list[int] = field(default_factory=list)

    def adapt_many(
        self, tasks: Sequence[Task], starts: Sequence[TaskParams], updates: Sequence[Update[Any]], steps: int
    ) -> list[Trajectory]:
        self.batches.append(len(tasks))
        return super().adapt_many(tasks, starts, updates, steps)


def test_threads_meet_and_get_their_own(make_backbone: Make, make_task: MakeTask) -> None:
    backbone = make_backbone()
    inner = Counting(backbone)
    engine = Together(inner)
    update = Preconditioned(None, site_rates(backbone.sites, 0.05, 0.3))
    tasks = [make_task(images, way=2) for images in (4, 5, 6, 7)]

    def twice(task: Task) -> torch.Tensor:
        first = engine.adapt(task, backbone.init(), update, 2)
        if len(task.support.labels) == 4:  # one leaves early; nobody waits for it
            return first.losses
        return engine.adapt(task, first.params, update, 1).losses

    found = engine.each([lambda task=task: twice(task) for task in tasks])  # type: ignore[misc]
    assert inner.batches == [4, 3]
    for task, losses in zip(tasks, found, strict=True):
        wanted = inner.adapt(task, backbone.init(), update, 3).losses
        torch.testing.assert_close(losses, wanted[:2] if len(losses) == 2 else wanted[2:])
    alone = engine.adapt(tasks[0], backbone.init(), update, 2)
    torch.testing.assert_close(alone.losses, found[0])
    assert len(inner.batches) == 2


def test_features_are_asked_for_together_too(make_backbone: Make, make_task: MakeTask) -> None:
    backbone = make_backbone()
    engine = Together(PlainEngine(backbone))
    tasks = [make_task(images, way=2) for images in (4, 5, 6)]
    wanted = [backbone(backbone.init(), task.support.images) for task in tasks]
    for _ in range(2):  # threads are kept for a second time
        found = engine.each(
            [lambda t=task: engine.embed(backbone.init(), t.support.images) for task in tasks]  # type: ignore[misc]
        )
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other)
    assert engine.expected == 0


def test_a_problem_reaches_all_who_wait(make_backbone: Make, make_task: MakeTask) -> None:
    backbone = make_backbone()
    engine = Together(PlainEngine(backbone))
    update = Preconditioned(None, site_rates(backbone.sites, 0.05, 0.3))
    bad = {"nowhere": torch.zeros(2, 2)}
    works = [
        lambda start=start: engine.adapt(make_task(4, way=2), start, update, 1)  # type: ignore[misc]
        for start in (backbone.init(), bad)
    ]
    with pytest.raises(Exception, match="nowhere"):
        engine.each(works)
    assert engine.expected == 0
