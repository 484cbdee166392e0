"""Learning named tensors from whole tasks by Adam: what Proto-MAML, URT and the modulators are trained by.

They differ in what a task's loss is, which they say as a function from a task to a `Judged`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import NamedTuple

import torch
from torch import Tensor

from fewshift.core.losses import accuracy
from fewshift.data.random import keyed_stream
from fewshift.errors import FewshiftError
from fewshift.training.checkpoint import learner_tensors, restore_learner
from fewshift.training.distributed import Team
from fewshift.training.loop import Metrics, Validation
from fewshift.training.named import add_where, length, zeros
from fewshift.training.schedule import cosine_restarts, take_step
from fewshift.training.tasks import Sampling, TaskSource, task_addresses, validation_addresses
from fewshift.training.validation import by_domain
from fewshift.types import Address, Episode, Split


@dataclass(frozen=True, kw_only=True)
class TaskSettings:
    """What such runs leave to choose alike."""

    updates: int
    tasks_per_update: int
    rate: float
    weight_decay: float = 0.0
    period: int | None = None  # of cosine restarts; None: the rate stays
    sampling: Sampling = "stratified"
    favourite: str | None = None  # this domain gives half of the tasks
    split: Split = "train"
    validation_split: Split = "valid"
    validation_tasks: int = 20  # per domain; 0 for no validation
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("updates", "tasks_per_update", "period"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise FewshiftError(f"training: {name} is {value}: give 1 or more")
        if not 0 < self.rate < inf:
            raise FewshiftError(f"training: the rate is {self.rate}: give more than 0")


class Judged(NamedTuple):
    """One task: what to minimise, the queries' logits, and numbers for the log."""

    loss: Tensor  # () carries a graph
    logits: Tensor  # (queries, way)
    numbers: Mapping[str, Tensor]


class TaskLearner:
    """`weights` learn; an update is the sum of its tasks' gradients and one step of Adam."""

    unit = "tasks"

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
        self.kind, self.judge, self.tasks, self.settings, self.team = kind, judge, tasks, settings, team
        self.numbers, self.weights = tuple(numbers), dict(weights)  # names for the log, what learns
        self.units, self.device = settings.tasks_per_update, next(iter(self.weights.values())).device
        self.checked_on = validation_addresses(
            kind, settings.seed, tasks, settings.validation_split, settings.validation_tasks
        )
        self.optimizer = torch.optim.Adam(
            list(self.weights.values()), lr=settings.rate, weight_decay=settings.weight_decay
        )

    def update(self, step: int) -> Metrics:
        """One step. Tasks whose loss or gradient is not finite are left out and counted."""
        summed, totals = zeros(self.weights), torch.zeros(3, device=self.device)  # loss, accuracy, tasks
        extra = torch.zeros(len(self.numbers), device=self.device)
        for address in self.team.share(self.addresses(step)):
            episode = self.tasks.episode(address)
            judged = self.judge(episode)
            found = torch.autograd.grad(judged.loss, list(self.weights.values()), materialize_grads=True)
            usable = torch.stack([judged.loss.detach(), *(g.sum() for g in found)]).isfinite().all()
            add_where(usable, summed, dict(zip(self.weights, found, strict=True)))
            right = accuracy(judged.logits.detach(), episode.query.labels)
            numbers = torch.stack([judged.loss.detach(), right, torch.ones_like(right)])
            totals += torch.where(usable, numbers, torch.zeros_like(numbers))
            if self.numbers:
                told = torch.stack([judged.numbers[name].detach() for name in self.numbers])
                extra += torch.where(usable, told, torch.zeros_like(told))
        self.team.add_up([totals, extra, *summed.values()])
        for name, weight in self.weights.items():
            weight.grad = summed[name]
        rate = self.rate(step)
        take_step(self.optimizer, rate)
        return {
            "loss": totals[0] / totals[2],  # not a number when no task counts, which ends the run
            "accuracy": totals[1] / totals[2],
            **dict(zip(self.numbers, extra / totals[2], strict=True)),
            "skipped": self.units - totals[2],
            "gradient_norm": length(summed.values()),
            "rate": rate,
        }

    def validate(self) -> Validation | None:
        """Accuracy on VALID tasks."""

        @torch.no_grad()
        def accuracy_of(address: Address) -> Tensor:
            episode = self.tasks.episode(address)
            return accuracy(self.judge(episode).logits, episode.query.labels)

        return by_domain(self.checked_on, accuracy_of, self.device, self.team)

    def tensors(self) -> dict[str, Tensor]:
        """The weights and what Adam remembers of them."""
        return learner_tensors("weights", self.weights, self.optimizer)

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Return to a state that `tensors` gave."""
        restore_learner(tensors, "weights", self.weights, self.optimizer)

    def rate(self, step: int) -> float:
        """The step size of this step."""
        period = self.settings.period
        return self.settings.rate if period is None else cosine_restarts(self.settings.rate, step, period)

    def addresses(self, step: int) -> list[Address]:
        """The tasks of this step; the favourite's are half of them, drawn by the toss of a coin each."""
        settings, favourite = self.settings, self.settings.favourite
        domains = self.tasks.domains
        others = [d for d in domains if d != favourite] or list(domains)
        sampling = settings.sampling if favourite not in domains else "uniform"
        drawn = task_addresses(
            self.kind, settings.seed, others, settings.split, step, settings.tasks_per_update, sampling
        )
        if favourite is None or favourite not in domains:
            return drawn
        coin = keyed_stream("favourite", drawn[0].seed, step)
        return [replace(a, domain=favourite) if coin.below(2) else a for a in drawn]
