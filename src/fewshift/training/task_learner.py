"""Learning named tensors from whole tasks by Adam, as the dataset classifier, policies and most methods do.

They differ in what a task's loss is, which they say as a `Judged`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from fewshift.data.random import keyed_stream
from fewshift.nets.kit import Part
from fewshift.training.checkpoint import Kept
from fewshift.training.distributed import Team
from fewshift.training.loop import Metrics, Outcome, Validation
from fewshift.training.named import add_where, length, zeros
from fewshift.training.refusals import at_least
from fewshift.training.schedule import cosine_restarts, take_step
from fewshift.training.tasks import TaskChoice, TaskSource, chosen_tasks, validation_addresses
from fewshift.training.validation import by_domain
from fewshift.types import Address, Episode


class Judged(NamedTuple):
    """One task: what to minimise, and numbers for the log."""

    loss: Tensor  # () carries a graph
    numbers: Mapping[str, Tensor]  # () each
    usable: Tensor | None = None  # () bool, where more must be finite than the loss

    @property
    def counts(self) -> Tensor:  # () bool
        """Can it be used, as far as can be told without its gradients?"""
        finite = self.loss.detach().isfinite()
        return finite if self.usable is None else finite & self.usable


class TaskLearner(Kept, ABC):
    """`weights` learn; an update is the sum of its tasks' gradients and one step of Adam."""

    unit = "tasks"
    averaged = False  # the mean of the gradients instead of their sum

    def __init__(
        self,
        kind: str,
        weights: Mapping[str, Tensor],
        numbers: Sequence[str],
        tasks: TaskSource,
        settings: TaskChoice,
        team: Team,
        weight_decay: float = 0.0,
    ) -> None:
        self.kind, self.tasks, self.settings, self.team = kind, tasks, settings, team
        self.numbers, self.weights = tuple(numbers), dict(weights)  # names for the log, what learns
        self.units, self.device = settings.tasks_per_update, next(iter(self.weights.values())).device
        self.checked_on = validation_addresses(
            kind, settings.seed, tasks, settings.validation_split, settings.validation_tasks
        )
        self.optimizer = torch.optim.Adam(
            list(self.weights.values()), lr=settings.rate, weight_decay=weight_decay
        )
        self.parts: dict[str, Mapping[str, Tensor]] = {"weights": self.weights}
        self.moved_by = {"optimizer": (self.optimizer, self.weights)}

    @abstractmethod
    def judged(self, addresses: Sequence[Address]) -> Iterable[Judged]:
        """These tasks, in their order."""

    def rate(self, step: int) -> float:
        """The step size of this step."""
        return self.settings.rate

    def addresses(self, step: int) -> list[Address]:
        """The tasks of this step."""
        return chosen_tasks(self.kind, self.settings, self.tasks.domains, step)

    def told(self, judged: Judged) -> Tensor:  # -> (numbers + 2,)
        """A task's loss, its numbers, and 1 for the task itself, ready to be added up."""
        values = [judged.loss, *(judged.numbers[name] for name in self.numbers)]
        return torch.stack([*(v.detach().float() for v in values), torch.ones((), device=self.device)])

    def update(self, step: int) -> Metrics:
        """One step. Tasks whose loss or gradient is not finite are left out and counted."""
        summed = zeros(self.weights)
        totals = torch.zeros(len(self.numbers) + 2, device=self.device)
        for judged in self.judged(self.team.share(self.addresses(step))):
            found = torch.autograd.grad(judged.loss, list(self.weights.values()), materialize_grads=True)
            usable = judged.counts & torch.stack([g.sum() for g in found]).isfinite().all()
            add_where(usable, summed, dict(zip(self.weights, found, strict=True)))
            totals += torch.where(usable, self.told(judged), 0.0)
        self.team.add_up([totals, *summed.values()])
        for name, weight in self.weights.items():
            weight.grad = summed[name].div_(totals[-1].clamp_min(1)) if self.averaged else summed[name]
        rate = self.rate(step)
        take_step(self.optimizer, rate)
        means = totals[:-1] / totals[-1]  # not numbers when no task counts, which ends the run
        return {
            **dict(zip(("loss", *self.numbers), means, strict=True)),
            "skipped": self.units - totals[-1],
            "gradient_norm": length(summed.values()),
            "rate": rate,
        }


@dataclass(frozen=True, kw_only=True)
class TaskSettings(TaskChoice):
    """What runs that judge episode by episode leave to choose alike."""

    weight_decay: float = 0.0
    period: int | None = None  # of cosine restarts; None: the rate stays
    favourite: str | None = None  # this domain gives half of the tasks
    validation_tasks: int = 20  # per domain; 0 for no validation

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(1, f"{self.stage}: ", self, "period")


@dataclass(frozen=True)
class TrainedPart:
    """What a run gives that learns a part of a kit, on the CPU."""

    part: Part
    outcome: Outcome


class EpisodeLearner(TaskLearner):
    """What Proto-MAML, URT and the modulators are trained by: `judge` says an episode's loss and accuracy."""

    settings: TaskSettings

    def __init__(
        self,
        kind: str,
        weights: Mapping[str, Tensor],
        judge: Callable[[Episode], Judged],
        numbers: Sequence[str],
        tasks: TaskSource,
        settings: TaskSettings,
        team: Team,
    ) -> None:
        super().__init__(kind, weights, ("accuracy", *numbers), tasks, settings, team, settings.weight_decay)
        self.judge = judge

    def judged(self, addresses: Sequence[Address]) -> Iterable[Judged]:
        """These tasks, in their order."""
        return (self.judge(self.tasks.episode(address)) for address in addresses)

    def validate(self) -> Validation | None:
        """Accuracy on VALID tasks."""

        @torch.no_grad()
        def accuracy_of(address: Address) -> Tensor:
            return self.judge(self.tasks.episode(address)).numbers["accuracy"]

        return by_domain(self.checked_on, accuracy_of, self.device, self.team)

    def rate(self, step: int) -> float:
        """The step size of this step."""
        period = self.settings.period
        return self.settings.rate if period is None else cosine_restarts(self.settings.rate, step, period)

    def addresses(self, step: int) -> list[Address]:
        """The tasks of this step; the favourite's are half of them, drawn by the toss of a coin each."""
        favourite, domains = self.settings.favourite, self.tasks.domains
        if favourite not in domains:
            return super().addresses(step)
        others = [domain for domain in domains if domain != favourite] or list(domains)
        drawn = chosen_tasks(self.kind, replace(self.settings, sampling="uniform"), others, step)
        coin = keyed_stream("favourite", drawn[0].seed, step)
        return [replace(a, domain=favourite) if coin.below(2) else a for a in drawn]
