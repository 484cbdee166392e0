"""Which tasks a step learns from: addresses made of the seed and the step's number, never of a state."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

import torch

from fewshift.data.plan import Choices, choices, plan_task
from fewshift.data.protocol import VARYING, Protocol
from fewshift.data.random import keyed_stream
from fewshift.errors import DataError, FewshiftError
from fewshift.training.refusals import above_zero, at_least
from fewshift.types import Address, Episode, Split

if TYPE_CHECKING:  # they are made of tasks in turn
    from fewshift.data.resident import ResidentDomain
    from fewshift.training.features import FeatureDomain
    from fewshift.training.streamed import StreamedDomain

Sampling: TypeAlias = Literal["stratified", "uniform"]


# What tasks are gathered from: a domain's images, or what a network makes of them, on a device.
Held: TypeAlias = "ResidentDomain | StreamedDomain | FeatureDomain"
TaskSource: TypeAlias = "ResidentTasks | AroundTasks"  # tasks by address, where they are learned from


@dataclass(frozen=True)
class ResidentTasks:
    """Tasks gathered from images or features that are held on a device."""

    residents: Mapping[str, Held]
    protocol: Protocol = VARYING
    _choices: dict[tuple[str, Split], Choices] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.residents:
            raise FewshiftError("training needs one domain at least")

    @property
    def domains(self) -> tuple[str, ...]:
        """The domains in the order they were given."""
        return tuple(self.residents)

    @property
    def strangers(self) -> tuple[str, ...]:
        """None: all tasks are of real domains."""
        return ()

    @property
    def device(self) -> torch.device:
        """Where the tasks are."""
        return next(iter(self.residents.values())).device

    def has(self, domain: str, split: Split) -> bool:
        """Are there classes of this split at all?"""
        return len(self.residents[domain].spec.splits[split]) > 0

    def check(self, domain: str, split: Split) -> None:
        """Complain where these classes cannot give a task."""
        self._among(domain, split)

    def episode(self, address: Address) -> Episode:
        """The task at this address."""
        among = self._among(address.domain, address.split)
        return self.residents[address.domain].episode(plan_task(among, address.seed, address.index))

    def identity(self) -> dict[str, object]:
        """Fingerprints of the domains' specs and class names, the pixel rule and the protocol."""
        return {
            "order": list(self.residents),
            "domains": {name: domain.spec.fingerprint() for name, domain in self.residents.items()},
            "classes": {name: domain.spec.names_fingerprint() for name, domain in self.residents.items()},
            "pixels": next(iter(self.residents.values())).made_of,
            "protocol": self.protocol.to_dict(),
        }

    def _among(self, domain: str, split: Split) -> Choices:
        if (domain, split) not in self._choices:
            self._choices[domain, split] = choices(self.residents[domain].spec, split, self.protocol)
        return self._choices[domain, split]


class AroundTasks(ABC):
    """What a source around another has of the one inside; `episode` and `identity` are its own."""

    tasks: TaskSource

    @abstractmethod
    def episode(self, address: Address) -> Episode:
        """The task at this address."""

    @abstractmethod
    def identity(self) -> dict[str, object]:
        """What decides the tasks: data and protocol, ready for JSON."""

    @property
    def domains(self) -> tuple[str, ...]:
        """The real domains."""
        return self.tasks.domains

    @property
    def strangers(self) -> tuple[str, ...]:
        """Those of the source inside."""
        return self.tasks.strangers

    @property
    def protocol(self) -> Protocol:
        """The protocol of the tasks."""
        return self.tasks.protocol

    def has(self, domain: str, split: Split) -> bool:
        """Are there classes of this split at all?"""
        return self.tasks.has(domain, split)

    def check(self, domain: str, split: Split) -> None:
        """Complain where these classes cannot give a task."""
        self.tasks.check(domain, split)


@dataclass(frozen=True, kw_only=True)
class TaskChoice:
    """How far a run on tasks goes, which tasks it learns from and which ones it is validated on."""

    stage: ClassVar[str] = "training"

    updates: int
    tasks_per_update: int
    rate: float
    sampling: Sampling = "stratified"
    split: Split = "train"  # whose classes the tasks are made of
    validation_split: Split = "valid"
    validation_tasks: int  # per domain; 0 for no validation
    seed: int = 0

    def __post_init__(self) -> None:
        at_least(1, f"{self.stage}: ", self, "updates", "tasks_per_update")
        above_zero(f"{self.stage}: the rate", self.rate)


def chosen_tasks(stage: str, settings: TaskChoice, domains: Sequence[str], step: int) -> list[Address]:
    """The tasks of one step as a run's settings choose them."""
    return task_addresses(
        stage, settings.seed, domains, settings.split, step, settings.tasks_per_update, settings.sampling
    )


def task_addresses(
    stage: str, seed: int, domains: Sequence[str], split: Split, step: int, count: int, sampling: Sampling
) -> list[Address]:
    """The `count` tasks of one step.

    Stratified: domains take turns, so that a step's numbers of tasks differ by one at most (16 of 8 domains:
    two each) and no domain is left out for long. Uniform: each task's domain is drawn, as the published
    readers do.
    """
    own = _stage_seed(stage, seed)
    first = step * count
    if sampling == "uniform":
        stream = keyed_stream("domains", own, step)
        return [Address(own, domains[stream.below(len(domains))], split, first + j) for j in range(count)]
    return [
        Address(own, domains[t % len(domains)], split, t // len(domains)) for t in range(first, first + count)
    ]


def validation_addresses(
    stage: str, seed: int, source: TaskSource, split: Split, tasks: int
) -> list[Address]:
    """The same `tasks` of every domain that has such classes, each time.

    Learners ask for them before they learn: classes that are too few for a task are no news for the end.
    """
    own = _stage_seed(f"{stage} validation", seed)
    domains = [domain for domain in source.domains if tasks and source.has(domain, split)]
    try:
        for domain in domains:
            source.check(domain, split)
    except DataError as problem:
        raise DataError(f"{problem}; or do without validation: --validation-tasks 0") from None
    return [Address(own, domain, split, index) for domain in domains for index in range(tasks)]


def _stage_seed(stage: str, seed: int) -> int:
    """A seed of its own for each stage, so that no stage meets the tasks of another."""
    return int.from_bytes(hashlib.sha256(f"{stage} {seed}".encode()).digest()[:6], "big")
