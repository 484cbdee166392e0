"""Training FLUTE's template: shared convolutions, and for every domain its own scale and shift of each norm.

Every set of images is of one domain and is normalised by its own moments; its FiLM and its part of the cosine
head are that domain's. Published (confirmed from code): 16 images per set, 8 sets per update, half of the
sets ImageNet's, momentum SGD at 0.01 with cosine periods that double from 5,000 updates, 640,000 updates.
Decays are twice the published ones because those have no half in them. Ours: weights start as a ResNet's
usually do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from fewshift.core.centroids import cosine_logits, prototypes, unit
from fewshift.core.losses import accuracy
from fewshift.data.protocol import VARYING, Protocol
from fewshift.data.resident import ResidentDomain
from fewshift.errors import FewshiftError
from fewshift.nets.backbone import Backbone, freeze
from fewshift.nets.film import FilmSites, modulate, norms_as_film
from fewshift.nets.moments import by_own_moments, with_moments_of
from fewshift.nets.resnet import ResNet18
from fewshift.nets.tensor_file import join, part
from fewshift.progress import Track, silent
from fewshift.training.augment import Augmentation
from fewshift.training.checkpoint import Kept, identity_of
from fewshift.training.cosine_heads import class_means, random_rows
from fewshift.training.distributed import ALONE, Team
from fewshift.training.domain_sets import domain_sets
from fewshift.training.loop import Metrics, Outcome, Validation, Watch, run
from fewshift.training.named import length
from fewshift.training.refusals import above_zero, at_least
from fewshift.training.schedule import cosine_doubling, take_step
from fewshift.training.tasks import ResidentTasks, validation_addresses
from fewshift.training.validation import by_domain
from fewshift.types import Address


@dataclass(frozen=True, kw_only=True)
class TemplateSettings:
    """The defaults are the published ones, in the terms of torch."""

    updates: int = 640_000
    sets_per_update: int = 8
    set_size: int = 16
    rate: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 1.4e-3  # on convolutions and head
    film_decay: float = 2e-4  # towards scale 1 and shift 0
    period: int = 5_000  # of the first cosine
    favourite: str | None = "ilsvrc_2012"
    start: Literal["fresh", "backbone"] = "fresh"  # backbone: go on from the kit's, which is not FLUTE's way
    augmentation: Augmentation = field(default_factory=Augmentation)
    never_mirrored: tuple[str, ...] = ()  # domains that a mirroring augmentation leaves alone
    validation_tasks: int = 75  # per domain; 0 for no validation
    seed: int = 0

    def __post_init__(self) -> None:
        at_least(1, "train flute: ", self, "updates", "sets_per_update", "set_size", "period")
        above_zero("train flute: the rate", self.rate)


@dataclass(frozen=True)
class TrainedTemplate:
    """What a run gives, on the CPU: `template/…` weights and `films/…` by site, (K, 2, c)."""

    tensors: Mapping[str, Tensor]
    outcome: Outcome


class TemplateLearner(Kept):
    """Convolutions for all domains; FiLM and a slice of the head for each."""

    kind, unit = "flute", "images"

    def __init__(
        self,
        like: Backbone,
        domains: Mapping[str, ResidentDomain],
        settings: TemplateSettings,
        protocol: Protocol,
        team: Team,
    ) -> None:
        self.settings, self.team, self.tasks = settings, team, ResidentTasks(domains, protocol)
        self.device, self.units = self.tasks.device, settings.sets_per_update * settings.set_size
        self.checked_on = validation_addresses(
            self.kind, settings.seed, self.tasks, "valid", settings.validation_tasks
        )
        self.sets = domain_sets(
            domains,
            "train",
            count=settings.sets_per_update,
            size=settings.set_size,
            seed=settings.seed,
            augmentation=settings.augmentation,
            never_mirrored=settings.never_mirrored,
            favourite=settings.favourite,
        )
        classes = [stream.classes for stream in self.sets.streams]
        first = _first_template(like, settings).to(self.device)
        self.frozen, films = norms_as_film(first, len(domains), fresh=settings.start == "fresh")
        convs = [name for name, weight in self.frozen.items() if weight.ndim == 4]
        new_head = class_means if settings.start == "backbone" else random_rows
        head = new_head(first, self.sets.streams, settings.seed)
        self.groups = {
            "template": {name: self.frozen[name].requires_grad_() for name in convs},
            "films": {site: film.requires_grad_() for site, film in films.items()},
            "head": {"head": head.requires_grad_()},
            "temperature": {"temperature": torch.tensor(10.0, device=self.device).requires_grad_()},
        }
        decays = (settings.weight_decay, settings.film_decay, settings.weight_decay, 0.0)
        self.optimizer = torch.optim.SGD(
            [
                {"params": list(group.values()), "weight_decay": decay}
                for group, decay in zip(self.groups.values(), decays, strict=True)
            ],
            lr=settings.rate,
            momentum=settings.momentum,
        )
        self.weights = {f"{g}/{n}": w for g, group in self.groups.items() for n, w in group.items()}
        self.parts, self.moved_by = {"weights": self.weights}, {"optimizer": (self.optimizer, self.weights)}
        self.template = Backbone(first.net, self.frozen, FilmSites(tuple(films)))
        self.own = by_own_moments(self.template)
        owners = torch.repeat_interleave(torch.arange(len(classes)), torch.tensor(classes))
        self.owners = owners.to(self.device)  # domain of each row of the head
        self.offsets = torch.tensor([0, *classes[:-1]]).cumsum(0).to(self.device)

    def update(self, step: int) -> Metrics:
        """Mean cross-entropy of the sets, each among its own domain's classes."""
        sets = self.sets.at(step, self.team)
        logits = self.logits(sets.images, sets.domains)
        wanted = (sets.labels + self.offsets[sets.domains][:, None]).flatten()
        loss = F.cross_entropy(logits, wanted, reduction="sum") / self.units
        gradients = torch.autograd.grad(loss, list(self.weights.values()))
        right = (logits.detach().argmax(dim=1) == wanted).sum() / self.units
        numbers = torch.stack([loss.detach(), right])
        self.team.add_up([numbers, *gradients])
        for weight, gradient in zip(self.weights.values(), gradients, strict=True):
            weight.grad = gradient
        rate = cosine_doubling(self.settings.rate, step, self.settings.period)
        take_step(self.optimizer, rate)
        temperature = self.groups["temperature"]["temperature"].detach().clone()
        return {
            "loss": numbers[0],
            "accuracy": numbers[1],
            "temperature": temperature,
            "gradient_norm": length(gradients),
            "rate": rate,
        }

    def logits(self, images: Tensor, domains: Tensor) -> Tensor:  # (s, n, 3, h, w), (s,) -> (s·n, classes)
        """Cosines to the head's rows times the temperature; rows of other domains are out of the question.

        All sets go through the network together, each with its own moments and FiLM.
        """
        films = {site: film[domains] for site, film in self.groups["films"].items()}

        def features_of(film: dict[str, Tensor], some: Tensor) -> Tensor:
            found: Tensor = torch.func.functional_call(self.own.net, modulate(self.frozen, film), (some,))
            return found

        features = torch.func.vmap(features_of)(films, images).flatten(0, 1)
        cosines = unit(features) @ unit(self.groups["head"]["head"]).T
        strange = self.owners != domains.repeat_interleave(images.shape[1])[:, None]
        return (self.groups["temperature"]["temperature"] * cosines).masked_fill(strange, -torch.inf)

    def validate(self) -> Validation | None:
        """Nearest-centroid accuracy on VALID tasks, with the FiLM of each task's own domain."""

        @torch.no_grad()
        def accuracy_of(address: Address) -> Tensor:
            episode, place = self.tasks.episode(address), self.tasks.domains.index(address.domain)
            film = {site: value[place] for site, value in self.groups["films"].items()}
            support, query = episode.task.support, episode.query
            settled, features = with_moments_of(self.template, self.own, film, support.images)
            centres = prototypes(features, support.labels, episode.task.way)
            return accuracy(cosine_logits(settled(film, query.images), centres), query.labels)

        return by_domain(self.checked_on, accuracy_of, self.device, self.team)


def train_template(
    like: Backbone,
    domains: Mapping[str, ResidentDomain],
    settings: TemplateSettings,
    folder: Path,
    *,
    protocol: Protocol = VARYING,
    watch: Watch,
    resume: bool = False,
    track: Track = silent,
    team: Team = ALONE,
) -> TrainedTemplate:
    """Train a template of the architecture of `like` on these domains' TRAIN classes."""
    learner = TemplateLearner(like, domains, settings, protocol, team)
    identity = identity_of(settings, "updates", tasks=learner.tasks.identity(), backbone=like.fingerprint())
    outcome = run(learner, folder, identity, settings.updates, watch, resume=resume, track=track, team=team)
    learned = part(outcome.checkpoint().tensors, "weights")
    still = {name: weight.detach().cpu() for name, weight in learner.frozen.items()}
    template = {**still, **part(learned, "template")}
    return TrainedTemplate(join({"template": template, "films": part(learned, "films")}), outcome)


def _first_template(like: Backbone, settings: TemplateSettings) -> Backbone:
    """Fresh weights of the same architecture, or those of `like`."""
    if settings.start == "backbone":
        return like
    if not isinstance(like.net, ResNet18):
        raise FewshiftError("train flute: a fresh template can only be a ResNet18: give --start backbone")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        return freeze(ResNet18(like.net.width, like.net.stem_padding))
