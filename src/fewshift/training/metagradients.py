"""The meta-gradients of a batch of tasks: the one place where a faster way can be put in.

`OneByOne` is the definition. `FoldedOneByOne` equals it by test and is faster, at first order only. Any other
way is a function with the signature of `MetaGradients`, passed to the trainers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from fewshift.core.losses import inner_objective, scored_outer_objective
from fewshift.core.metagrad import MetaGradient, meta_gradient
from fewshift.nets.backbone import Backbone
from fewshift.nets.folded_resnet import FoldedResNet, SupportFeatures, folded_resnet
from fewshift.nets.precision import DEFAULT, Precision
from fewshift.training.settings import InnerLevel
from fewshift.types import Episode, Features, Preconditioner, TaskParams


@dataclass(frozen=True)
class Job:
    """A task, the P it descends with and the parameters it starts from."""

    episode: Episode
    preconditioner: Preconditioner
    start: TaskParams


class MetaGradients(Protocol):
    """Meta-gradients of tasks, in the order of the jobs, which are taken as they are needed."""

    def __call__(self, jobs: Iterable[Job], inner: InnerLevel, starts: bool) -> Iterator[MetaGradient]:
        """`starts`: are gradients of the starting values wanted, too?"""
        ...


@dataclass(frozen=True)
class OneByOne:
    """One task after the other, in the memory of one."""

    backbone: Backbone

    def __call__(self, jobs: Iterable[Job], inner: InnerLevel, starts: bool) -> Iterator[MetaGradient]:
        """The definition that every other way must equal."""
        return _each(jobs, inner, starts, self.backbone, lambda job: (self.backbone, self.backbone))


@dataclass(frozen=True)
class FoldedOneByOne:
    """The same on folded convolutions, whose derivative is written by hand; second order falls back.

    In `bfloat16` the convolutions take numbers of 16 bits; all other precisions are those of the weights.
    """

    backbone: Backbone
    precision: Precision = "float32"

    @cached_property
    def net(self) -> FoldedResNet:
        """The folded weights, made once."""
        return folded_resnet(self.backbone, torch.bfloat16 if self.precision == "bfloat16" else None)

    def __call__(self, jobs: Iterable[Job], inner: InnerLevel, starts: bool) -> Iterator[MetaGradient]:
        """Equal to `OneByOne` up to rounding."""
        if inner.order == 2:
            return OneByOne(self.backbone)(jobs, inner, starts)
        return _each(jobs, inner, starts, self.backbone, self._features)

    def _features(self, job: Job) -> tuple[Features, Features]:
        """Of the support images alone, where what no parameter changes is computed once; of any images."""
        support = SupportFeatures(self.net, job.episode.task.support.images, tuple(job.start))
        return (
            lambda params, _: support(params),
            lambda params, images: SupportFeatures(self.net, images, tuple(params))(params),
        )


def arithmetic_of(ways: MetaGradients) -> dict[str, str]:
    """What a run's identity says of its precision: nothing at the usual one."""
    own = getattr(ways, "precision", DEFAULT)
    return {} if own == DEFAULT else {"precision": own}


def is_finite(found: MetaGradient, starts: bool) -> Tensor:  # -> () bool, on the device
    """Is every number of this task usable? A length is finite only where its numbers are."""
    if found.usable is not None:
        return found.usable
    parts = [*found.preconditioner.values(), *(found.start.values() if starts else ())]
    return torch.stack([found.loss, *torch._foreach_norm(parts)]).isfinite().all()


def only_finite(found: MetaGradient, starts: bool) -> MetaGradient:
    """The same with gradients of zero if any number of the task is not finite: it can be added to others'."""
    if found.usable is not None:
        return found
    usable = is_finite(found, starts)
    pulls, start = (
        {site: torch.where(usable, d, 0.0) for site, d in part.items()}
        for part in (found.preconditioner, found.start)
    )
    return replace(found, preconditioner=pulls, start=start if starts else found.start, usable=usable)


def _each(
    jobs: Iterable[Job],
    inner: InnerLevel,
    starts: bool,
    backbone: Backbone,
    features_of: Callable[[Job], tuple[Features, Features]],
) -> Iterator[MetaGradient]:
    """One after the other, by what gives a job's features of S, and of S and Q together."""
    for job in jobs:
        alone, together = features_of(job)
        yield meta_gradient(
            inner_objective(alone, job.episode.task),
            scored_outer_objective(together, job.episode),
            job.start,
            job.preconditioner,
            inner.rates(job.start, backbone.sites[-1]),
            inner.steps,
            inner.order,
            exact_start=starts,
        )
