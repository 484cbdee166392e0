"""Algorithm 2: meta-training the dataset classifier g, whose softmax blends the domains' preconditioners.

Its "max iteration" of 4,000 is read as updates of 16 tasks: eight cosine periods of T-max = 500 (read as
tasks it would be half a period). Runs may stop earlier, on validation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from fewshift.core.precond import DomainPreconditioners
from fewshift.core.starts import Starts
from fewshift.errors import FewshiftError
from fewshift.nets.backbone import Backbone
from fewshift.nets.set_encoder import DatasetClassifier, FeatureClassifier
from fewshift.nets.tensor_file import part
from fewshift.progress import Track, silent
from fewshift.training.checkpoint import copy_into, identity_of, learner_tensors, restore_learner
from fewshift.training.classifier_objective import ClassifierObjective
from fewshift.training.distributed import ALONE, Team
from fewshift.training.fastest import best_meta_gradients
from fewshift.training.loop import Metrics, Outcome, Validation, Watch, run
from fewshift.training.metagradients import MetaGradients, arithmetic_of
from fewshift.training.named import add_where, fingerprint, length, zeros
from fewshift.training.schedule import cosine_restarts, take_step
from fewshift.training.settings import ClassifierSettings
from fewshift.training.tasks import TaskSource, chosen_tasks, validation_addresses


@dataclass(frozen=True)
class TrainedClassifier:
    """What a run of Algorithm 2 gives, on the CPU."""

    classifier: DatasetClassifier | FeatureClassifier
    outcome: Outcome


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
        self.tasks, self.settings, self.team = tasks, settings, team
        self.units, self.device = settings.tasks_per_update, backbone.device
        self.checked_on = validation_addresses(
            self.kind, settings.seed, tasks, settings.validation_split, settings.validation_tasks
        )
        self.net = new_classifier(backbone, len(preconditioners.domains), settings).to(self.device)
        self.judged = ClassifierObjective(
            self.net, backbone, self.preconditioners, self.starts, tasks, settings, meta_gradients
        )
        self.weights = dict(self.net.named_parameters())
        self.optimizer = torch.optim.Adam(
            list(self.weights.values()), lr=settings.rate, weight_decay=settings.weight_decay
        )

    def update(self, step: int) -> Metrics:
        """Lines 5 to 14 of Algorithm 2: the sum over a batch of tasks, one optimizer step."""
        settings = self.settings
        addresses = chosen_tasks(self.kind, settings, self.tasks.domains, step)
        summed, totals = zeros(self.weights), torch.zeros(6, device=self.device)
        for judged in self.judged(self.team.share(addresses)):
            found = torch.autograd.grad(judged.objective, list(self.weights.values()))
            usable = judged.usable & torch.stack([gradient.sum() for gradient in found]).isfinite().all()
            add_where(usable, summed, dict(zip(self.weights, found, strict=True)))
            numbers = torch.cat([judged.numbers, torch.ones(1, device=self.device)])
            totals += torch.where(usable, numbers, torch.zeros_like(numbers))
        self.team.add_up([totals, *summed.values()])
        for name, weight in self.weights.items():
            weight.grad = summed[name]
        rate = cosine_restarts(settings.rate, step, settings.period)
        take_step(self.optimizer, rate)
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
        if not self.checked_on:
            return None
        totals = torch.zeros(6, dtype=torch.float64, device=self.device)
        for judged in self.judged(self.team.share(self.checked_on)):
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
        return learner_tensors("net", self.net.state_dict(), self.optimizer, self.weights)

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Return to a state that `tensors` gave."""
        restore_learner(tensors, "net", self.net.state_dict(), self.optimizer, self.weights)


def train_classifier(
    backbone: Backbone,
    preconditioners: DomainPreconditioners,
    tasks: TaskSource,
    settings: ClassifierSettings,
    folder: Path,
    *,
    starts: Starts | None = None,
    watch: Watch,
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
    ways = meta_gradients or best_meta_gradients(backbone)
    learner = ClassifierLearner(backbone, preconditioners, starts, tasks, settings, ways, team)
    identity = arithmetic_of(ways) | identity_of(
        settings,
        "updates",
        tasks=tasks.identity(),
        backbone=backbone.fingerprint(),
        preconditioners=fingerprint(
            {"roots": preconditioners.roots, "starts": {} if starts is None else starts.values}
        ),
    )
    outcome = run(learner, folder, identity, settings.updates, watch, resume=resume, track=track, team=team)
    classifier = new_classifier(backbone, len(preconditioners.domains), settings)
    copy_into(classifier.state_dict(), part(outcome.checkpoint().tensors, "net"))
    return TrainedClassifier(classifier.eval(), outcome)


def new_classifier(
    backbone: Backbone, domains: int, settings: ClassifierSettings
) -> DatasetClassifier | FeatureClassifier:
    """A fresh g whose weights the seed alone decides; the global generator stays as it is."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        if settings.reads == "images":
            return DatasetClassifier(domains, settings.width)
        return FeatureClassifier(domains, backbone.dim, settings.width)
