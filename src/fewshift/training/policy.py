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

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path

import torch
from torch import Tensor

from fewshift.core.losses import support_loss
from fewshift.core.parallel import Counts, collapsed_adadelta
from fewshift.core.updates import site_rates
from fewshift.data.random import keyed_stream
from fewshift.errors import FewshiftError
from fewshift.nets.backbone import Backbone
from fewshift.nets.choice import choose_engine
from fewshift.nets.engine import Engine
from fewshift.nets.policy import AdapterPolicy, Decision, configured, new_policy
from fewshift.nets.tensor_file import part
from fewshift.progress import Track, silent
from fewshift.training.checkpoint import copy_into, identity_of, learner_tensors, restore_learner
from fewshift.training.distributed import ALONE, Team
from fewshift.training.loop import Metrics, Outcome, Validation, Watch, run
from fewshift.training.named import add_where, length, zeros
from fewshift.training.schedule import take_step
from fewshift.training.tasks import Sampling, TaskSource, chosen_tasks, validation_addresses
from fewshift.training.validation import by_domain, centroid_accuracy
from fewshift.types import Address, Episode, Split

NUMBERS = ("loss", "reward", "accuracy", "sampled_accuracy", "own_loss", "entropy", "adapters_per_site")


@dataclass(frozen=True, kw_only=True)
class PolicySettings:
    """Everything that decides a policy. The defaults are the published ones for eight domains."""

    updates: int = 1_250
    tasks_per_update: int = 8
    rate: float = 1e-4
    temperature: float = 10.0  # divides the logits of a choice
    trial_steps: int = 10
    trial_rate: float = 0.5
    sampling: Sampling = "stratified"
    split: Split = "train"
    validation_split: Split = "valid"
    validation_tasks: int = 50  # per domain; 0 for no validation
    validation_steps: int = 40
    validation_rates: tuple[float, float] = (0.05, 0.1)  # adapters, last map: the test rates of seen domains
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("updates", "tasks_per_update", "trial_steps"):
            if getattr(self, name) < 1:
                raise FewshiftError(f"train policy: {name} is {getattr(self, name)}: give 1 or more")
        if not all(0 < value < inf for value in (self.rate, self.temperature, self.trial_rate)):
            raise FewshiftError(
                f"train policy: rate {self.rate}, temperature {self.temperature}, trial rate "
                f"{self.trial_rate}: give more than 0"
            )


@dataclass(frozen=True)
class TrainedPolicy:
    """What a run gives, on the CPU."""

    policy: AdapterPolicy
    outcome: Outcome


def tried(engine: Engine, episode: Episode, counts: Counts, rate: float, steps: int) -> Tensor:  # -> ()
    """The query accuracy after some steps of the adapters alone under a configuration.

    The last map is there at rate 0 and not left out: graphs are for all sites together.
    """
    start = configured(engine, engine.backbone.init(), counts)
    rates = {**dict.fromkeys(start, rate), engine.backbone.sites[-1]: 0.0}
    params = engine.adapt(episode.task, start, collapsed_adadelta(start, rates, counts), steps).params
    return centroid_accuracy(lambda images: engine.embed(params, images), episode)


def reinforce_loss(
    decision: Decision, sampled: Tensor, reward: Tensor, own_loss: Tensor
) -> Tensor:  # (sites,), (), () -> ()
    """−R Σ_l log π_l(a_l) + L_own."""
    return -reward.detach() * decision.log_probability(sampled) + own_loss


class PolicyLearner:
    """The heads and the policy's own adapters learn; the backbone is a constant."""

    kind, unit = "policy", "tasks"

    def __init__(self, backbone: Backbone, tasks: TaskSource, settings: PolicySettings, team: Team) -> None:
        self.backbone, self.tasks, self.settings, self.team = backbone, tasks, settings, team
        self.units, self.device = settings.tasks_per_update, backbone.device
        self.checked_on = validation_addresses(
            self.kind, settings.seed, tasks, settings.validation_split, settings.validation_tasks
        )
        self.engine = choose_engine(backbone)
        self.policy = new_policy(backbone, settings.temperature, settings.seed)
        self.policy.to(backbone.device, backbone.dtype)
        self.weights = dict(self.policy.named_parameters())
        self.optimizer = torch.optim.Adam(list(self.weights.values()), lr=settings.rate)

    def update(self, step: int) -> Metrics:
        """The mean over a batch of tasks, one step of Adam."""
        settings = self.settings
        addresses = chosen_tasks(self.kind, settings, self.tasks.domains, step)
        summed = zeros(self.weights)
        totals = torch.zeros(len(NUMBERS) + 1, device=self.device)  # the numbers, tasks that count
        for address in self.team.share(addresses):
            objective, numbers = self._judged(address)
            found = torch.autograd.grad(objective, list(self.weights.values()))
            usable = torch.stack([objective.detach(), *(g.sum() for g in found)]).isfinite().all()
            add_where(usable, summed, dict(zip(self.weights, found, strict=True)))
            numbers = torch.cat([numbers, numbers.new_ones(1)]).to(totals)
            totals += torch.where(usable, numbers, torch.zeros_like(numbers))
        self.team.add_up([totals, *summed.values()])
        for name, weight in self.weights.items():
            weight.grad = summed[name].div_(totals[-1].clamp_min(1))
        gradient_norm = length(summed.values())
        take_step(self.optimizer, settings.rate)
        means = totals[:-1] / totals[-1]  # not numbers when no task counts, which ends the run
        return {
            **dict(zip(NUMBERS, means, strict=True)),
            "skipped": settings.tasks_per_update - totals[-1],
            "gradient_norm": gradient_norm,
            "rate": settings.rate,
        }

    def validate(self) -> Validation | None:
        """Accuracy of TA²-Net on VALID tasks: the greedy configuration, adapters and last map."""
        settings = self.settings

        def accuracy_of(address: Address) -> Tensor:
            episode = self.tasks.episode(address)
            counts = self.policy.counts(self.backbone, episode.task)
            start = configured(self.engine, self.backbone.init(), counts)
            rates = site_rates(start, *settings.validation_rates, self.backbone.sites[-1])
            rule = collapsed_adadelta(start, rates, counts)
            params = self.engine.adapt(episode.task, start, rule, settings.validation_steps).params
            return centroid_accuracy(lambda images: self.engine.embed(params, images), episode)

        return by_domain(self.checked_on, accuracy_of, self.device, self.team)

    def tensors(self) -> dict[str, Tensor]:
        """The policy's weights and what Adam remembers of them."""
        return learner_tensors("net", self.policy.state_dict(), self.optimizer, self.weights)

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Return to a state that `tensors` gave."""
        restore_learner(tensors, "net", self.policy.state_dict(), self.optimizer, self.weights)

    def _judged(self, address: Address) -> tuple[Tensor, Tensor]:  # -> (), (len(NUMBERS),)
        """One task: its loss with a graph, and numbers for the log."""
        episode = self.tasks.episode(address)
        support = episode.task.support
        decision: Decision = self.policy(self.backbone, episode.task)
        sampled = decision.sampled(self._uniforms(address, len(decision.sites)))
        accuracies = [self._tried(episode, decision.counts())]
        other = dict(zip(decision.sites, sampled.tolist(), strict=True))
        same = other == decision.counts()
        accuracies.append(accuracies[0] if same else self._tried(episode, other))
        reward = accuracies[1] - accuracies[0]
        own = support_loss(decision.features, support.labels, episode.task.way)
        objective = reinforce_loss(decision, sampled, reward, own)
        chances = decision.log_probabilities.detach()
        entropy = -(chances.exp() * chances).sum(dim=1).mean()
        mean = decision.greedy.float().mean()
        numbers = [objective.detach(), reward, *accuracies, own.detach(), entropy, mean]
        return objective, torch.stack([number.float() for number in numbers])

    def _tried(self, episode: Episode, counts: Counts) -> Tensor:
        return tried(self.engine, episode, counts, self.settings.trial_rate, self.settings.trial_steps)

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
