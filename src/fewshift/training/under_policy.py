"""Algorithm 1 for TSP††: the preconditioners are meta-trained under TA²-Net's configuration of each task.

Stated in the paper: the r adapters of a site all take the same preconditioned steps, in training as at test.
They are one matrix with a step divided by r (`fewshift.core.parallel`), which is a P divided by r: so this
wraps what computes meta-gradients and changes what goes in and what comes out. Inferred: the policy was
trained before and does not learn here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fewshift.core.descent import Trajectory
from fewshift.core.metagrad import MetaGradient
from fewshift.core.parallel import Counts, collapsed_descent, shared, without_effect
from fewshift.core.updates import Preconditioned, Update
from fewshift.errors import FewshiftError
from fewshift.nets.backbone import Backbone
from fewshift.nets.engine import AroundEngine, Engine
from fewshift.nets.policy import AdapterPolicy, configured
from fewshift.training.metagradients import Job, MetaGradients
from fewshift.training.settings import InnerLevel
from fewshift.types import Task, TaskParams


@dataclass(frozen=True)
class UnderPolicy:
    """Meta-gradients of tasks whose sites have as many adapters as the policy says."""

    backbone: Backbone
    policy: AdapterPolicy
    meta_gradients: MetaGradients

    def __call__(self, jobs: Iterable[Job], inner: InnerLevel, starts: bool) -> Iterator[MetaGradient]:
        """∂L_out/∂P of each job's own P, through r equal adapters per site."""
        waiting: deque[Counts] = deque()

        def configured_jobs() -> Iterator[Job]:
            for job in jobs:
                counts = self.policy.counts(self.backbone, job.episode.task)
                waiting.append(counts)
                start = without_effect(job.start, counts)
                yield replace(job, preconditioner=shared(job.preconditioner, counts), start=start)

        for found in self.meta_gradients(configured_jobs(), inner, starts):
            counts = waiting.popleft()
            pulls, adjoint = shared(found.preconditioner, counts), without_effect(found.start, counts)
            yield replace(found, preconditioner=pulls, start=adjoint)


@dataclass(frozen=True)
class ConfiguredEngine(AroundEngine):
    """An engine that asks the policy how many adapters a task gets, for preconditioned descent."""

    engine: Engine
    policy: AdapterPolicy

    def adapt_many(
        self, tasks: Sequence[Task], starts: Sequence[TaskParams], updates: Sequence[Update[Any]], steps: int
    ) -> list[Trajectory]:
        """`steps` steps of each task under the policy's configuration of it."""
        begins, rules = [], []
        for task, start, update in zip(tasks, starts, updates, strict=True):
            if not isinstance(update, Preconditioned):
                kind = type(update).__name__
                raise FewshiftError(f"under a policy there is preconditioned descent only, not {kind}")
            counts = self.policy.counts(self.backbone, task)
            begins.append(configured(self.engine, start, counts))
            rules.append(collapsed_descent(update.preconditioner, update.rates, counts))
        return self.engine.adapt_many(tasks, begins, rules, steps)
