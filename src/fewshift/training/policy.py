"""Training TA²-Net's policy: self-critical REINFORCE over the number of adapters per site.

For a task the policy gives its greedy configuration g and a sampled one a. Both are tried: adapters alone
(no last map) descend on the support set, and the difference of their query accuracies is the reward R of
having sampled. The loss is −R Σ_l log π_l(a_l), plus the support loss of the policy's own features, which
trains its own adapters. No critic, no discount, no entropy bonus.

Confirmed from code (PRIS-CV/TA2-Net): all of this, Adadelta at 0.5 in the trials, Adam at 1e-4, the mean over
as many tasks per update as there are domains, 10,000 tasks in all. Ours, where the release looks unintended:
greedy and sampled are tried for the same 10 steps (there 30 and 10, so a reward of 0 was never to be had),
tasks are the protocol's (there always 5-way 1-shot), the best validated policy is kept (there the last).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from fewshift.core.losses import support_loss
from fewshift.core.parallel import Counts, collapsed_adadelta
from fewshift.core.updates import site_rates
from fewshift.data.random import keyed_stream
from fewshift.nets.backbone import Backbone
from fewshift.nets.choice import choose_engine
from fewshift.nets.engine import Engine
from fewshift.nets.policy import AdapterPolicy, Decision, configured, new_policy
from fewshift.nets.tensor_file import part
from fewshift.progress import Track, silent
from fewshift.training.checkpoint import copy_into, identity_of
from fewshift.training.distributed import ALONE, Team
from fewshift.training.loop import Outcome, Validation, Watch, run
from fewshift.training.refusals import above_zero, at_least
from fewshift.training.task_learner import Judged, TaskLearner
from fewshift.training.tasks import TaskChoice, TaskSource
from fewshift.training.validation import adapted_accuracy, by_domain
from fewshift.types import Address, Episode

NUMBERS = ("reward", "accuracy", "sampled_accuracy", "own_loss", "entropy", "adapters_per_site")


@dataclass(frozen=True, kw_only=True)
class PolicySettings(TaskChoice):
    """Everything that decides a policy. The defaults are the published ones for eight domains."""

    stage = "train policy"

    updates: int = 1_250
    tasks_per_update: int = 8
    rate: float = 1e-4
    temperature: float = 10.0  # divides the logits of a choice
    trial_steps: int = 10
    trial_rate: float = 0.5
    validation_tasks: int = 50  # per domain; 0 for no validation
    validation_steps: int = 40
    validation_rates: tuple[float, float] = (0.05, 0.1)  # adapters, last map: the test rates of seen domains

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(1, f"{self.stage}: ", self, "trial_steps")
        above_zero(f"{self.stage}: the temperature", self.temperature)
        above_zero(f"{self.stage}: the trial rate", self.trial_rate)


@dataclass(frozen=True)
class TrainedPolicy:
    """What a run gives, on the CPU."""

    policy: AdapterPolicy
    outcome: Outcome


def tried(
    engine: Engine, episode: Episode, counts: Counts, rates: tuple[float, float], steps: int
) -> Tensor:  # -> ()
    """The query accuracy after steps under a configuration, at rates of the adapters and the last map."""
    start = configured(engine, engine.backbone.init(), counts)
    rule = collapsed_adadelta(start, site_rates(start, *rates, engine.backbone.sites[-1]), counts)
    return adapted_accuracy(engine, episode, start, rule, steps)


def reinforce_loss(
    decision: Decision, sampled: Tensor, reward: Tensor, own_loss: Tensor
) -> Tensor:  # (sites,), (), () -> ()
    """−R Σ_l log π_l(a_l) + L_own."""
    return -reward.detach() * decision.log_probability(sampled) + own_loss


class PolicyLearner(TaskLearner):
    """The heads and the policy's own adapters learn; the backbone is a constant."""

    averaged = True
    settings: PolicySettings

    def __init__(self, backbone: Backbone, tasks: TaskSource, settings: PolicySettings, team: Team) -> None:
        self.backbone, self.engine = backbone, choose_engine(backbone)
        self.policy = new_policy(backbone, settings.temperature, settings.seed)
        self.policy.to(backbone.device, backbone.dtype)
        super().__init__("policy", dict(self.policy.named_parameters()), NUMBERS, tasks, settings, team)
        self.parts = {"net": self.policy.state_dict()}

    def validate(self) -> Validation | None:
        """Accuracy of TA²-Net on VALID tasks: the greedy configuration, adapters and last map."""
        settings = self.settings

        def accuracy_of(address: Address) -> Tensor:
            episode = self.tasks.episode(address)
            counts = self.policy.counts(self.backbone, episode.task)
            return tried(self.engine, episode, counts, settings.validation_rates, settings.validation_steps)

        return by_domain(self.checked_on, accuracy_of, self.device, self.team)

    def judged(self, addresses: Sequence[Address]) -> Iterable[Judged]:
        """REINFORCE's loss of these tasks."""
        return (self._judged(self.tasks.episode(address)) for address in addresses)

    def _judged(self, episode: Episode) -> Judged:
        support = episode.task.support
        decision: Decision = self.policy(self.backbone, episode.task)
        sampled = decision.sampled(self._uniforms(episode.address, len(decision.sites)))
        accuracies = [self._tried(episode, decision.counts())]
        other = dict(zip(decision.sites, sampled.tolist(), strict=True))
        same = other == decision.counts()
        accuracies.append(accuracies[0] if same else self._tried(episode, other))
        reward = accuracies[1] - accuracies[0]
        own = support_loss(decision.features, support.labels, episode.task.way)
        objective = reinforce_loss(decision, sampled, reward, own)
        chances = decision.log_probabilities.detach()
        entropy = -(chances.exp() * chances).sum(dim=1).mean()
        numbers = (reward, *accuracies, own, entropy, decision.greedy.float().mean())
        return Judged(objective, dict(zip(NUMBERS, numbers, strict=True)))

    def _tried(self, episode: Episode, counts: Counts) -> Tensor:
        """Of the adapters alone. The last map is there at rate 0: graphs are for all sites together."""
        return tried(self.engine, episode, counts, (self.settings.trial_rate, 0.0), self.settings.trial_steps)

    def _uniforms(self, address: Address, count: int) -> Tensor:  # -> (count,)
        """The draws that belong to a task, whatever was drawn before."""
        stream = keyed_stream("policy", address.seed, address.domain, address.split, address.index)
        return torch.tensor(stream.uniforms(count), device=self.device)


def train_policy(
    backbone: Backbone,
    tasks: TaskSource,
    settings: PolicySettings,
    folder: Path,
    *,
    watch: Watch,
    resume: bool = False,
    track: Track = silent,
    team: Team = ALONE,
) -> TrainedPolicy:
    """Train a policy. The best validated one is returned; `folder` keeps the log and the checkpoints."""
    learner = PolicyLearner(backbone, tasks, settings, team)
    identity = identity_of(settings, "updates", tasks=tasks.identity(), backbone=backbone.fingerprint())
    outcome = run(learner, folder, identity, settings.updates, watch, resume=resume, track=track, team=team)
    policy = new_policy(backbone, settings.temperature, settings.seed).to(dtype=backbone.dtype)
    copy_into(policy.state_dict(), part(outcome.checkpoint().tensors, "net"))
    return TrainedPolicy(policy.requires_grad_(False), outcome)
