"""What the dataset classifier minimises on a task: Eq. 12 as a function of its weights."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fewshift.core.coefficients import classifier_loss, task_coefficients
from fewshift.core.metagrad import MetaGradient, coefficient_gradient, linearised
from fewshift.core.precond import DomainPreconditioners, blend_sites
from fewshift.core.starts import Starts
from fewshift.nets.backbone import Backbone
from fewshift.nets.feature_classifier import FeatureClassifier
from fewshift.nets.last_map import below_last
from fewshift.nets.set_encoder import DatasetClassifier
from fewshift.training.last_map_descent import blended_last_map
from fewshift.training.metagradients import Job, MetaGradients, is_finite
from fewshift.training.settings import ClassifierSettings
from fewshift.training.tasks import TaskSource
from fewshift.types import Address, Episode, TaskParams


@dataclass(frozen=True)
class Judged:
    """One task: its objective as a function of g's weights, and numbers for the log."""

    objective: Tensor  # () carries a graph
    numbers: Tensor  # (5,): objective, cross-entropy, auxiliary loss, query accuracy, domain found?
    usable: Tensor  # () bool


class ClassifierObjective:
    """Judges tasks; `net` is g, and everything else is a constant."""

    def __init__(
        self,
        net: DatasetClassifier | FeatureClassifier,
        backbone: Backbone,
        preconditioners: DomainPreconditioners,
        starts: Starts | None,
        tasks: TaskSource,
        settings: ClassifierSettings,
        meta_gradients: MetaGradients,
    ) -> None:
        self.net, self.backbone, self.preconditioners, self.starts = net, backbone, preconditioners, starts
        self.tasks, self.settings, self.meta_gradients = tasks, settings, meta_gradients
        self.start = backbone.init()
        self.blended = blended_last_map(backbone, preconditioners, starts)
        self.matrices = {} if self.blended else preconditioners.matrices()

    def __call__(self, addresses: Sequence[Address]) -> Iterator[Judged]:
        """The tasks one after the other; a faster way may take several at once."""
        if self.settings.auxiliary == 0:
            for address in addresses:
                logits = self._logits(self.tasks.episode(address))
                yield self._judge(
                    address, logits, logits.new_zeros(()), logits.new_zeros(()), logits.isfinite().all()
                )
            return
        if self.blended is not None:
            for address in addresses:
                episode = self.tasks.episode(address)
                logits = self._logits(episode)
                scored = self.blended(episode, self.settings.inner, task_coefficients(logits))
                yield self._judge(address, logits, scored.loss, scored.accuracy, scored.loss.isfinite())
            return
        open_graphs: deque[tuple[Tensor, Tensor, TaskParams]] = deque()

        def jobs() -> Iterator[Job]:
            for address in addresses:
                episode = self.tasks.episode(address)
                logits, coefficients, start = self._blend(episode)
                open_graphs.append((logits, coefficients, start))
                matrices = blend_sites(coefficients.detach(), self.matrices)
                yield Job(episode, matrices, {site: value.detach() for site, value in start.items()})

        found = self.meta_gradients(jobs(), self.settings.inner, self.starts is not None)
        for address, gradients in zip(addresses, found, strict=True):
            logits, coefficients, start = open_graphs.popleft()
            auxiliary = self._auxiliary(gradients, coefficients, start)
            accuracy = logits.new_zeros(()) if gradients.accuracy is None else gradients.accuracy
            usable = is_finite(gradients, self.starts is not None)
            yield self._judge(address, logits, auxiliary, accuracy, usable)

    def _blend(self, episode: Episode) -> tuple[Tensor, Tensor, TaskParams]:
        logits = self._logits(episode)
        coefficients = task_coefficients(logits)
        return logits, coefficients, self.start if self.starts is None else self.starts.blend(coefficients)

    def _logits(self, episode: Episode) -> Tensor:  # -> (k,)
        images = episode.task.support.images
        if isinstance(self.net, FeatureClassifier):
            images = below_last(self.backbone, images)
        logits: Tensor = self.net(images)
        return logits

    def _auxiliary(self, found: MetaGradient, coefficients: Tensor, start: TaskParams) -> Tensor:
        """L_aux as a function of the coefficients (Eq. 13): through P, and theta_0 where that is blended."""
        value = linearised(
            found.loss, coefficients, coefficient_gradient(found.preconditioner, self.matrices)
        )
        if self.starts is not None:
            for site, point in start.items():
                value = value + linearised(torch.zeros_like(found.loss), point, found.start[site])
        return value

    def _judge(
        self, address: Address, logits: Tensor, auxiliary: Tensor, accuracy: Tensor, usable: Tensor
    ) -> Judged:
        index = self.preconditioners.index(address.domain)
        entropy = classifier_loss(logits, index, torch.zeros_like(auxiliary), 0.0)
        objective = self.settings.auxiliary * auxiliary
        if self.settings.cross_entropy:
            objective = classifier_loss(logits, index, auxiliary, self.settings.auxiliary)
        found = (logits.argmax() == index).float() if len(logits) > 1 else (logits[0] > 0).float()
        numbers = torch.stack([objective, entropy, auxiliary, accuracy, found]).detach()
        return Judged(objective, numbers, usable)
