"""Meta-training of Proto-MAML and of the rules on top of it: ALFA, GAP, Meta-SGD, Meta-Curvature.

First order by default: inner gradients are constants, but the outer gradient still reaches the start through
the prototypes that the head is made of, and the rule through everything it does with the gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from fewshift.core.descent import descend, detached, unroll
from fewshift.core.losses import accuracy
from fewshift.core.rules import Rule, rule_named
from fewshift.core.updates import Update
from fewshift.errors import FewshiftError
from fewshift.nets.backbone import Backbone
from fewshift.nets.fast_weights import NORMS, FastNet, Norm, fast_net
from fewshift.nets.kit import Part
from fewshift.nets.tensor_file import join, part
from fewshift.progress import Track, silent
from fewshift.training.checkpoint import identity_of
from fewshift.training.distributed import ALONE, Team
from fewshift.training.loop import Validation, Watch, run
from fewshift.training.named import owned, zeros
from fewshift.training.task_learner import EpisodeLearner, Judged, TaskSettings, TrainedPart
from fewshift.training.tasks import TaskSource
from fewshift.training.validation import by_domain
from fewshift.types import Address, Episode, TaskParams


@dataclass(frozen=True, kw_only=True)
class MamlSettings(TaskSettings):
    """The defaults are the published ones of Proto-MAML on all datasets (confirmed from code).

    `rule_rate` is Adam's rate for what the rule learns beside the weights (inferred). `weight_decay` is twice
    the published 7.16e-4, whose loss has no factor 1/2.
    """

    rule: str = "sgd"
    updates: int = 75_000
    tasks_per_update: int = 1
    rate: float = 2.98e-4
    weight_decay: float = 1.432e-3
    rule_rate: float = 1e-3
    fall: float = 0.766  # the rates are multiplied by this …
    fall_every: int = 500  # … after so many updates
    inner_rate: float = 0.0199
    steps: int = 1
    test_steps: int = 6
    order: Literal[1, 2] = 1
    norm: Norm = "support"

    def __post_init__(self) -> None:
        super().__post_init__()
        rule_named(self.rule)
        if self.norm not in NORMS:
            raise FewshiftError(f"train maml: the norm is {self.norm!r}: choose one of {', '.join(NORMS)}")
        if not (0 < self.inner_rate < inf and 0 < self.rule_rate < inf and 0 < self.fall <= 1):
            raise FewshiftError(
                f"train maml: inner rate {self.inner_rate}, rule rate {self.rule_rate}, fall {self.fall}: "
                "give rates above 0 and a fall above 0 and up to 1"
            )
        if self.steps < 1 or self.test_steps < 0 or self.fall_every < 1:
            raise FewshiftError(f"train maml: {self.steps} steps, {self.test_steps} at test: give 1 or more")


@dataclass(frozen=True)
class TrainedMaml(TrainedPart):
    """Beside it, the method whose part it is."""

    method: str


@dataclass(frozen=True)
class MetaLearned:
    """The weights a task starts from and what the rule learned, both as one dictionary that Adam can move.

    The rule's parts are kept as their distance from where they start, in units of `rule_rate / rate`. Adam
    moves every number at its one rate, so the rule moves at its own, and a decay pulls it to the start.
    """

    net: FastNet
    rule: Rule
    rule_start: Mapping[str, Tensor]
    unit: float
    settings: MamlSettings

    def start(self) -> dict[str, Tensor]:
        """What learns, before it does: the backbone's own weights and the rule as it starts."""
        return owned(join({"weights": self.net.settled.init(), "rule": zeros(self.rule_start)}))

    def rule_tensors(self, learned: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What the rule learned."""
        moved = part(learned, "rule")
        return {name: start + self.unit * moved[name] for name, start in self.rule_start.items()}

    def update(self, learned: Mapping[str, Tensor]) -> Update[Any]:
        """The rule with what it learned."""
        shape = self.net.shape(part(learned, "weights"), self.settings.inner_rate, self.settings.steps)
        return self.rule.make(self.rule_tensors(learned), shape)


def meta_learned(backbone: Backbone, settings: MamlSettings) -> MetaLearned:
    """Everything before training: the rule as it starts, for this backbone."""
    net, rule = fast_net(backbone, settings.norm), rule_named(settings.rule)
    shape = net.shape(net.settled.init(), settings.inner_rate, settings.steps)
    start = rule.start(shape, torch.Generator().manual_seed(settings.seed))
    return MetaLearned(net, rule, start, settings.rule_rate / settings.rate, settings)


def task_judge(learned: Mapping[str, Tensor], meta: MetaLearned) -> Callable[[Episode], Judged]:
    """A task's outer loss as a function of what is learned."""
    net, settings = meta.net, meta.settings

    def judge(episode: Episode) -> Judged:
        weights = part(learned, "weights")
        still = weights if settings.order == 2 else detached(weights)
        trajectory = unroll(
            net.inner_objective(still, episode.task),
            net.start(weights, episode.task),
            meta.update(learned),
            settings.steps,
            settings.order,
        )
        logits = net.query_logits(weights, trajectory.params, episode)
        loss = F.cross_entropy(logits, episode.query.labels)
        right = accuracy(logits.detach(), episode.query.labels)
        return Judged(loss, {"accuracy": right, "support_loss": trajectory.losses[0]})

    return judge


class MamlLearner(EpisodeLearner):
    """Weights and rule by Adam, the rate falling in steps."""

    settings: MamlSettings

    def __init__(self, backbone: Backbone, tasks: TaskSource, settings: MamlSettings, team: Team) -> None:
        self.meta = meta_learned(backbone, settings)
        learned = {name: tensor.requires_grad_() for name, tensor in self.meta.start().items()}
        judge = task_judge(learned, self.meta)
        super().__init__("maml", learned, judge, ("support_loss",), tasks, settings, team)

    def rate(self, step: int) -> float:
        """The step size of this step."""
        return self.settings.rate * self.settings.fall ** (step // self.settings.fall_every)

    def validate(self) -> Validation | None:
        """Accuracy after the test's steps on VALID tasks."""
        settings = self.settings
        with torch.no_grad():
            weights, update = part(self.weights, "weights"), self.meta.update(self.weights)

        @torch.no_grad()
        def accuracy_of(address: Address) -> Tensor:
            episode, net = self.tasks.episode(address), self.meta.net
            start: TaskParams = net.start(weights, episode.task)
            objective = net.inner_objective(weights, episode.task)
            params = descend(objective, start, update, settings.test_steps).params
            logits = net.predictor(weights, params, episode.task)(episode.query.images)
            return accuracy(logits, episode.query.labels)

        return by_domain(self.checked_on, accuracy_of, self.device, self.team)


def train_maml(
    backbone: Backbone,
    tasks: TaskSource,
    settings: MamlSettings,
    folder: Path,
    *,
    watch: Watch,
    resume: bool = False,
    track: Track = silent,
    team: Team = ALONE,
) -> TrainedMaml:
    """Meta-train a backbone's weights and a rule. The best validated state is returned."""
    learner = MamlLearner(backbone, tasks, settings, team)
    identity = identity_of(settings, "updates", tasks=tasks.identity(), backbone=backbone.fingerprint())
    outcome = run(learner, folder, identity, settings.updates, watch, resume=resume, track=track, team=team)
    learned = part(outcome.checkpoint().tensors, "weights")
    return TrainedMaml(maml_part(backbone.to("cpu"), settings, learned), outcome, learner.meta.rule.method)


def maml_part(backbone: Backbone, settings: MamlSettings, learned: Mapping[str, Tensor]) -> Part:
    """What a kit keeps of a run."""
    meta = meta_learned(backbone, settings)
    tensors = join({"weights": part(learned, "weights"), "rule": meta.rule_tensors(learned)})
    kept = ("rule", "inner_rate", "steps", "test_steps", "norm")
    return Part(tensors, {name: getattr(settings, name) for name in kept})
