"""Algorithm 2: meta-training the dataset classifier g, whose softmax blends the domains' preconditioners.

Its "max iteration" of 4,000 is read as updates of 16 tasks: eight cosine periods of T-max = 500 (read as
tasks it would be half a period). Runs may stop earlier, on validation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from fewshift.core.coefficients import task_coefficients
from fewshift.core.metagrad import MetaGradient, coefficient_gradient, linearised
from fewshift.core.objectives import classifier_loss
from fewshift.core.precond import DomainPreconditioners, blend_sites
from fewshift.core.starts import Starts
from fewshift.errors import FewshiftError
from fewshift.nets.backbone import Backbone
from fewshift.nets.feature_classifier import FeatureClassifier
from fewshift.nets.last_map import below_last
from fewshift.nets.set_encoder import DatasetClassifier
from fewshift.nets.tensor_file import join, part
from fewshift.progress import Track, silent
from fewshift.training.checkpoint import copy_into, optimizer_tensors, restore_optimizer
from fewshift.training.distributed import ALONE, Team
from fewshift.training.fastest import best_meta_gradients
from fewshift.training.last_map_descent import blended_last_map
from fewshift.training.loop import Metrics, Outcome, Validation, Watch, run
from fewshift.training.metagradients import Job, MetaGradients, is_finite
from fewshift.training.named import add_where, fingerprint, length, zeros
from fewshift.training.new_classifier import new_classifier, new_classifier_for
from fewshift.training.schedule import cosine_restarts, set_rate
from fewshift.training.settings import ClassifierSettings
from fewshift.training.tasks import TaskSource, task_addresses, validation_addresses
from fewshift.types import Address, Episode, TaskParams

__all__ = [
    "PAPER_WATCH",
    "ClassifierLearner",
    "ClassifierSettings",
    "TrainedClassifier",
    "new_classifier",
    "train_classifier",
]

PAPER_WATCH = Watch(log_every=10, checkpoint_every=250, validate_every=500, patience=3)


@dataclass(frozen=True)
class TrainedClassifier:
    """What a run of Algorithm 2 gives, on the CPU."""

    classifier: DatasetClassifier | FeatureClassifier
    outcome: Outcome


@dataclass(frozen=True)
class Judged:
    """One task: its objective as a function of g's weights, and numbers for the log."""

    objective: Tensor  # () carries a graph
    numbers: Tensor  # (5,): objective, cross-entropy, auxiliary loss, query accuracy, domain found?
    usable: Tensor  # () bool


class ClassifierLearner:
    """g alone learns: the preconditioners, the starting values and the backbone are constants."""

    kind, unit = "classifier", "tasks"

    def __init__(
        self,
        backbone: Backbone,
        preconditioners: DomainPreconditioners,
        starts: Starts | None,
        tasks: TaskSource,
        settings: ClassifierSettings,
        meta_gradients: MetaGradients,
        team: Team,
    ) -> None:
        self.backbone, self.preconditioners = backbone, preconditioners.to(backbone.device)
        self.starts = None if starts is None else starts.to(backbone.device)
        self.tasks, self.settings, self.meta_gradients, self.team = tasks, settings, meta_gradients, team
        self.units, self.device = settings.tasks_per_update, backbone.device
        self.start = backbone.init()
        self.net = new_classifier_for(backbone, len(preconditioners.domains), settings).to(self.device)
        self.blended = blended_last_map(backbone, self.preconditioners, self.starts)
        self.matrices = {} if self.blended else self.preconditioners.matrices()
        self.weights = dict(self.net.named_parameters())
        self.optimizer = torch.optim.Adam(
            list(self.weights.values()), lr=settings.rate, weight_decay=settings.weight_decay
        )

    def update(self, step: int) -> Metrics:
        """Lines 5 to 14 of Algorithm 2: the sum over a batch of tasks, one optimizer step."""
        settings = self.settings
        addresses = task_addresses(
            self.kind,
            settings.seed,
            self.tasks.domains,
            settings.split,
            step,
            settings.tasks_per_update,
            settings.sampling,
        )
        summed, totals = zeros(self.weights), torch.zeros(6, device=self.device)
        for judged in self._judged(self.team.share(addresses)):
            found = torch.autograd.grad(judged.objective, list(self.weights.values()))
            usable = judged.usable & torch.stack([gradient.sum() for gradient in found]).isfinite().all()
            add_where(usable, summed, dict(zip(self.weights, found, strict=True)))
            numbers = torch.cat([judged.numbers, torch.ones(1, device=self.device)])
            totals += torch.where(usable, numbers, torch.zeros_like(numbers))
        self.team.add_up([totals, *summed.values()])
        for name, weight in self.weights.items():
            weight.grad = summed[name]
        rate = cosine_restarts(settings.rate, step, settings.period)
        set_rate(self.optimizer, rate)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        mean = totals[:5] / totals[5]
        return {
            "loss": mean[0],
            "cross_entropy": mean[1],
            "auxiliary": mean[2],
            "accuracy": mean[3],
            "domain_accuracy": mean[4],
            "skipped": settings.tasks_per_update - totals[5],
            "gradient_norm": length(summed.values()),
            "weight_norm": length(weight.detach() for weight in self.weights.values()),
            "rate": rate,
        }

    def validate(self) -> Validation | None:
        """The objective on VALID tasks (its negative is the score), and how often the domain is found."""
        settings = self.settings
        addresses = validation_addresses(
            self.kind, settings.seed, self.tasks, settings.validation_split, settings.validation_tasks
        )
        if not addresses:
            return None
        totals = torch.zeros(6, dtype=torch.float64, device=self.device)
        for judged in self._judged(self.team.share(addresses)):
            numbers = torch.cat([judged.numbers, torch.ones(1, device=self.device)]).double()
            totals += torch.where(judged.usable, numbers, torch.zeros_like(numbers))
        self.team.add_up([totals])
        objective, entropy, auxiliary, accuracy, found = (totals[:5] / totals[5]).tolist()
        details = {
            "cross_entropy": entropy,
            "auxiliary": auxiliary,
            "accuracy": accuracy,
            "domain_accuracy": found,
        }
        return Validation(-objective, details)

    def tensors(self) -> dict[str, Tensor]:
        """g's weights and what Adam remembers of them."""
        kept = optimizer_tensors(self.optimizer, list(self.weights))
        return join({"net": self.net.state_dict(), "optimizer": kept})

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Return to a state that `tensors` gave."""
        copy_into(self.net.state_dict(), part(tensors, "net"))
        restore_optimizer(self.optimizer, list(self.weights), part(tensors, "optimizer"))

    def _judged(self, addresses: list[Address]) -> Iterator[Judged]:
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


def train_classifier(
    backbone: Backbone,
    preconditioners: DomainPreconditioners,
    tasks: TaskSource,
    settings: ClassifierSettings,
    folder: Path,
    *,
    starts: Starts | None = None,
    watch: Watch = PAPER_WATCH,
    resume: bool = False,
    meta_gradients: MetaGradients | None = None,
    track: Track = silent,
    team: Team = ALONE,
) -> TrainedClassifier:
    """Algorithm 2. The best validated state is returned; `folder` keeps the log and the checkpoints."""
    strangers = [domain for domain in tasks.domains if domain not in preconditioners.domains]
    if strangers:
        raise FewshiftError(
            f"train classifier: there are no preconditioners for {', '.join(strangers)}: train on "
            f"{', '.join(preconditioners.domains)} only"
        )
    learner = ClassifierLearner(
        backbone,
        preconditioners,
        starts,
        tasks,
        settings,
        meta_gradients or best_meta_gradients(backbone),
        team,
    )
    identity = {
        "settings": {k: v for k, v in asdict(settings).items() if k != "updates"},
        "tasks": tasks.identity(),
        "backbone": backbone.fingerprint(),
        "preconditioners": fingerprint(
            {"roots": preconditioners.roots, "starts": {} if starts is None else starts.values}
        ),
    }
    outcome = run(
        learner,
        folder,
        identity=identity,
        updates=settings.updates,
        watch=watch,
        resume=resume,
        track=track,
        team=team,
    )
    classifier = new_classifier_for(backbone, len(preconditioners.domains), settings)
    copy_into(classifier.state_dict(), part(outcome.checkpoint().tensors, "net"))
    return TrainedClassifier(classifier.eval(), outcome)
