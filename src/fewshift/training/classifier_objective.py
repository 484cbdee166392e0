"""What the dataset classifier minimises on a task: Eq. 12 as a function of its weights."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from fewshift.core.coefficients import classifier_loss, domain_entropy, task_coefficients
from fewshift.core.descent import detached
from fewshift.core.losses import Scored
from fewshift.core.metagrad import MetaGradient, coefficient_gradient, linearised
from fewshift.core.precond import DomainPreconditioners, blend_sites
from fewshift.core.starts import Starts
from fewshift.nets.backbone import Backbone
from fewshift.nets.last_map import below_last
from fewshift.nets.set_encoder import DatasetClassifier, FeatureClassifier
from fewshift.training.last_map_descent import blended_last_map
from fewshift.training.metagradients import Job, MetaGradients, is_finite
from fewshift.training.settings import ClassifierSettings
from fewshift.training.task_learner import Judged
from fewshift.training.tasks import TaskSource
from fewshift.types import Address, Episode, TaskParams

NUMBERS = ("cross_entropy", "auxiliary", "accuracy", "domain_accuracy")


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
        if self.settings.auxiliary == 0 or self.blended is not None:
            for address in addresses:
                episode = self.tasks.episode(address)
                logits = self._logits(episode)
                yield self._judge(address, logits, self._at_once(episode, logits))
            return
        open_graphs: deque[tuple[Tensor, Tensor, TaskParams]] = deque()

        def jobs() -> Iterator[Job]:
            for address in addresses:
                episode = self.tasks.episode(address)
                logits = self._logits(episode)
                coefficients = task_coefficients(logits)
                start = self.start if self.starts is None else self.starts.blend(coefficients)
                open_graphs.append((logits, coefficients, start))
                yield Job(episode, blend_sites(coefficients.detach(), self.matrices), detached(start))

        found = self.meta_gradients(jobs(), self.settings.inner, self.starts is not None)
        for address, gradients in zip(addresses, found, strict=True):
            logits, coefficients, start = open_graphs.popleft()
            accuracy = logits.new_zeros(()) if gradients.accuracy is None else gradients.accuracy
            scored = Scored(self._auxiliary(gradients, coefficients, start), accuracy)
            yield self._judge(address, logits, scored, is_finite(gradients, self.starts is not None))

    def _logits(self, episode: Episode) -> Tensor:  # -> (k,)
        images = episode.task.support.images
        if isinstance(self.net, FeatureClassifier):
            images = below_last(self.backbone, images)
        logits: Tensor = self.net(images)
        return logits

    def _at_once(self, episode: Episode, logits: Tensor) -> Scored:
        """L_aux where it takes no gradients of an inner level: not asked for, or of the last map alone."""
        if self.settings.auxiliary == 0 or self.blended is None:
            return Scored(logits.new_zeros(()), logits.new_zeros(()))
        return self.blended(episode, self.settings.inner, task_coefficients(logits))

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
        self, address: Address, logits: Tensor, scored: Scored, usable: Tensor | None = None
    ) -> Judged:
        index, (auxiliary, accuracy) = self.preconditioners.index(address.domain), scored
        objective = self.settings.auxiliary * auxiliary
        if self.settings.cross_entropy:
            objective = classifier_loss(logits, index, auxiliary, self.settings.auxiliary)
        found = (logits.argmax() == index).float() if len(logits) > 1 else (logits[0] > 0).float()
        numbers = (domain_entropy(logits, index), auxiliary, accuracy, found)
        return Judged(objective, dict(zip(NUMBERS, numbers, strict=True)), usable)
