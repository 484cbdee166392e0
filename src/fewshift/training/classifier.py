"""Algorithm 2: meta-training the dataset classifier g, whose softmax blends the domains' preconditioners.

Its "max iteration" of 4,000 is read as updates of 16 tasks: eight cosine periods of T-max = 500 (read as
tasks it would be half a period). Runs may stop earlier, on validation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from fewshift.core.precond import DomainPreconditioners
from fewshift.core.starts import Starts
from fewshift.errors import FewshiftError
from fewshift.nets.backbone import Backbone
from fewshift.nets.set_encoder import DatasetClassifier, FeatureClassifier
from fewshift.nets.tensor_file import part
from fewshift.progress import Track, silent
from fewshift.training.checkpoint import copy_into, identity_of
from fewshift.training.classifier_objective import NUMBERS, ClassifierObjective
from fewshift.training.distributed import ALONE, Team
from fewshift.training.fastest import best_meta_gradients
from fewshift.training.loop import Metrics, Outcome, Validation, Watch, run
from fewshift.training.metagradients import MetaGradients, arithmetic_of
from fewshift.training.named import fingerprint, length
from fewshift.training.schedule import cosine_restarts
from fewshift.training.settings import ClassifierSettings
from fewshift.training.task_learner import Judged, TaskLearner
from fewshift.training.tasks import TaskSource
from fewshift.types import Address


@dataclass(frozen=True)
class TrainedClassifier:
    """What a run of Algorithm 2 gives, on the CPU."""

    classifier: DatasetClassifier | FeatureClassifier
    outcome: Outcome


class ClassifierLearner(TaskLearner):
    """g alone learns: the preconditioners, the starting values and the backbone are constants."""

    settings: ClassifierSettings

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
        self.preconditioners = preconditioners.to(backbone.device)
        there = None if starts is None else starts.to(backbone.device)
        self.net = new_classifier(backbone, len(preconditioners.domains), settings).to(backbone.device)
        self.objective = ClassifierObjective(
            self.net, backbone, self.preconditioners, there, tasks, settings, meta_gradients
        )
        weights, decay = dict(self.net.named_parameters()), settings.weight_decay
        super().__init__("classifier", weights, NUMBERS, tasks, settings, team, decay)
        self.parts = {"net": self.net.state_dict()}

    def judged(self, addresses: Sequence[Address]) -> Iterable[Judged]:
        """Lines 5 to 12 of Algorithm 2 for these tasks."""
        return self.objective(addresses)

    def rate(self, step: int) -> float:
        """The step size of this step."""
        return cosine_restarts(self.settings.rate, step, self.settings.period)

    def update(self, step: int) -> Metrics:
        """Lines 5 to 14 of Algorithm 2: the sum over a batch of tasks, one optimizer step."""
        metrics = super().update(step)
        return {**metrics, "weight_norm": length(weight.detach() for weight in self.weights.values())}

    def validate(self) -> Validation | None:
        """The objective on VALID tasks (its negative is the score), and how often the domain is found."""
        if not self.checked_on:
            return None
        totals = torch.zeros(len(NUMBERS) + 2, dtype=torch.float64, device=self.device)
        for judged in self.judged(self.team.share(self.checked_on)):
            totals += torch.where(judged.counts, self.told(judged).double(), 0.0)
        self.team.add_up([totals])
        objective, *numbers = (totals[:-1] / totals[-1]).tolist()
        return Validation(-objective, dict(zip(NUMBERS, numbers, strict=True)))


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
