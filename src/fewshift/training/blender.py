"""Training FLUTE's blender: which domain a set of images is of, by cross-entropy.

Published (confirmed from code): sets of 16 images of one domain, 8 sets per update, Adam at 0.001 with one
cosine of 3,000 updates (the run is longer, but its rate is then 0), a decay of all but the last bias in
which a norm's scale is pulled towards 1. The decay here is twice the published one, which has no half in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fewshift.data.resident import ResidentDomain
from fewshift.nets.set_encoder import DatasetClassifier
from fewshift.nets.tensor_file import part
from fewshift.progress import Track, silent
from fewshift.training.augment import Augmentation
from fewshift.training.checkpoint import Kept, identity_of
from fewshift.training.distributed import ALONE, Team
from fewshift.training.domain_sets import Sets, domain_sets
from fewshift.training.loop import Metrics, Outcome, Validation, Watch, run
from fewshift.training.named import length
from fewshift.training.refusals import at_least
from fewshift.training.schedule import cosine_restarts, take_step
from fewshift.training.tasks import ResidentTasks


@dataclass(frozen=True, kw_only=True)
class BlenderSettings:
    """The defaults are the published ones, in the terms of torch."""

    updates: int = 3_000
    sets_per_update: int = 8
    set_size: int = 16
    rate: float = 1e-3
    weight_decay: float = 1.4e-3
    period: int = 3_000
    code: int = 64  # filters per layer
    augmentation: Augmentation = field(default_factory=Augmentation)
    never_mirrored: tuple[str, ...] = ()  # domains that a mirroring augmentation leaves alone
    validation_sets: int = 25  # per domain; 0 for no validation
    seed: int = 0

    def __post_init__(self) -> None:
        counts = ("updates", "sets_per_update", "set_size", "period", "code")
        at_least(1, "train flute: the blender's ", self, *counts)


@dataclass(frozen=True)
class TrainedBlender:
    """What a run gives, on the CPU."""

    tensors: Mapping[str, Tensor]  # the state of a `DatasetClassifier`
    outcome: Outcome


class BlenderLearner(Kept):
    """A dataset classifier, on sets of images without labels."""

    kind, unit = "blender", "images"

    def __init__(self, domains: Mapping[str, ResidentDomain], settings: BlenderSettings, team: Team) -> None:
        self.settings, self.team = settings, team
        self.tasks, self.units = ResidentTasks(domains), settings.sets_per_update * settings.set_size
        self.device = self.tasks.device
        self.sets = domain_sets(
            domains,
            "train",
            count=settings.sets_per_update,
            size=settings.set_size,
            seed=settings.seed,
            augmentation=settings.augmentation,
            never_mirrored=settings.never_mirrored,
        )
        unused = {n: d for n, d in domains.items() if self.tasks.has(n, "valid")}
        self.places = torch.tensor([list(domains).index(name) for name in unused], device=self.device)
        count = max(len(unused), 1) * settings.validation_sets
        self.held_out = (
            domain_sets(unused, "valid", count=count, size=settings.set_size, seed=settings.seed)
            if unused and count
            else None
        )
        self.net = new_blender(len(domains), settings.code, settings.seed).to(self.device)
        self.weights = dict(self.net.named_parameters())
        self.rests = {name: _rest(self.net, name) for name in self.weights}
        self.optimizer = torch.optim.Adam(list(self.weights.values()), lr=settings.rate)
        self.parts = {"net": self.net.state_dict()}
        self.moved_by = {"optimizer": (self.optimizer, self.weights)}

    def update(self, step: int) -> Metrics:
        """Mean cross-entropy of the sets' domains, with a pull of every weight to where it rests."""
        settings, count = self.settings, self.settings.sets_per_update
        sets = self.sets.at(step, self.team)
        logits = torch.func.vmap(self.net)(sets.images)
        loss = F.cross_entropy(logits, sets.domains, reduction="sum") / count
        gradients = torch.autograd.grad(loss, list(self.weights.values()))
        right = (logits.detach().argmax(dim=1) == sets.domains).sum() / count
        numbers = torch.stack([loss.detach(), right])
        self.team.add_up([numbers, *gradients])
        for (name, weight), gradient in zip(self.weights.items(), gradients, strict=True):
            rest = self.rests[name]
            pull = 0.0 if rest is None else settings.weight_decay * (weight.detach() - rest)
            weight.grad = gradient + pull
        rate = cosine_restarts(settings.rate, step, settings.period)
        take_step(self.optimizer, rate)
        norm = length(gradients)
        return {"loss": numbers[0], "domain_accuracy": numbers[1], "gradient_norm": norm, "rate": rate}

    def validate(self) -> Validation | None:
        """How often the domain of a set of VALID images is found."""
        if self.held_out is None:
            return None
        sets: Sets = self.held_out.at(0)
        with torch.no_grad():
            logits = torch.stack([self.net(images) for images in sets.images])
        right = (logits.argmax(dim=1) == self.places[sets.domains]).float().mean()
        return Validation(float(right), {"sets": len(logits)})


def new_blender(domains: int, code: int, seed: int) -> DatasetClassifier:
    """A fresh classifier whose weights the seed alone decides, its head as published."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = DatasetClassifier(domains, code)
        nn.init.trunc_normal_(net.head.weight, std=0.1)
        nn.init.constant_(net.head.bias, 0.1)
    return net


def train_blender(
    domains: Mapping[str, ResidentDomain],
    settings: BlenderSettings,
    folder: Path,
    *,
    watch: Watch,
    resume: bool = False,
    track: Track = silent,
    team: Team = ALONE,
) -> TrainedBlender:
    """Learn to tell these domains apart, on their TRAIN images."""
    learner = BlenderLearner(domains, settings, team)
    identity = identity_of(settings, "updates", tasks=learner.tasks.identity())
    outcome = run(learner, folder, identity, settings.updates, watch, resume=resume, track=track, team=team)
    return TrainedBlender(part(outcome.checkpoint().tensors, "net"), outcome)


def _rest(net: nn.Module, name: str) -> float | None:
    """Where the decay pulls this weight to: 1 for the scale of a norm, nowhere for the last bias."""
    if name == "head.bias":
        return None
    return 1.0 if name.startswith("norms.") and name.endswith(".weight") else 0.0
