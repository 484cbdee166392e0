"""Training URT's heads on features that are extracted once: every task is then a gather and small products.

Published: 10,000 tasks, one an update, ImageNet's half of the time; Adam at 0.01 with one cosine, the last
state is used (confirmed from code).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from fewshift.core.losses import accuracy
from fewshift.core.urt import initial_selector, selector_loss
from fewshift.data.protocol import VARYING, Protocol
from fewshift.data.resident import ResidentDomain
from fewshift.nets.extractors import Extractors
from fewshift.nets.kit import Part
from fewshift.nets.tensor_file import part
from fewshift.progress import Track, silent
from fewshift.training.checkpoint import identity_of
from fewshift.training.distributed import ALONE, Team
from fewshift.training.loop import Watch, run
from fewshift.training.named import fingerprint
from fewshift.training.task_learner import EpisodeLearner, Judged, TaskSettings, TrainedPart
from fewshift.training.tasks import ResidentTasks
from fewshift.types import Episode

CHUNK = 1024  # images per pass


@dataclass(frozen=True, kw_only=True)
class SelectorSettings(TaskSettings):
    """The defaults are the published ones."""

    updates: int = 10_000
    tasks_per_update: int = 1
    rate: float = 0.01
    weight_decay: float = 1e-5
    period: int | None = 10_000
    favourite: str | None = "ilsvrc_2012"
    heads: int = 2
    hidden: int = 1024  # length of questions and answers
    penalty: float = 0.1  # of ‖AᵀA − I‖²


@dataclass(frozen=True)
class ExtractedDomain(ResidentDomain):
    """A domain whose images are read as the extractors' features of them, computed once."""

    features: Tensor  # (n, k, d), one row per image

    def images(self, rows: Tensor) -> Tensor:  # (n,) -> (n, k, d)
        """The features of these images."""
        return self.features.index_select(0, rows)


def with_features(domain: ResidentDomain, extractors: Extractors, track: Track = silent) -> ExtractedDomain:
    """The domain with every held image's features."""
    rows = torch.split(torch.arange(len(domain.levels), device=domain.device), CHUNK)
    found = [
        extractors(domain.images(some))
        for some in track(rows, label=f"features of {domain.name}", total=len(rows))
    ]
    return ExtractedDomain(domain.spec, domain.rule, domain.levels, domain.first, torch.cat(found))


def train_selector(
    extractors: Extractors,
    domains: Mapping[str, ResidentDomain],
    settings: SelectorSettings,
    folder: Path,
    *,
    protocol: Protocol = VARYING,
    watch: Watch,
    resume: bool = False,
    track: Track = silent,
    team: Team = ALONE,
) -> TrainedPart:
    """Learn which extractors to attend to, on these domains' TRAIN classes."""
    device = extractors.backbones[0].device
    tasks = ResidentTasks({n: with_features(d, extractors, track) for n, d in domains.items()}, protocol)
    first = initial_selector(
        len(extractors.domains),
        extractors.backbones[0].dim,
        settings.heads,
        settings.hidden,
        torch.Generator().manual_seed(settings.seed),
    )
    weights = {name: value.to(device).requires_grad_() for name, value in first.items()}

    def judge(episode: Episode) -> Judged:
        support, query = episode.task.support, episode.query
        entropy, apart, logits = selector_loss(
            weights, support.images, support.labels, episode.task.way, query.images, query.labels
        )
        right = accuracy(logits.detach(), query.labels)
        numbers = {"accuracy": right, "cross_entropy": entropy, "apart": apart}
        return Judged(entropy + settings.penalty * apart, numbers)

    learner = EpisodeLearner("selector", weights, judge, ("cross_entropy", "apart"), tasks, settings, team)
    frozen = {d: b.frozen for d, b in zip(extractors.domains, extractors.backbones, strict=True)}
    identity = identity_of(settings, "updates", tasks=tasks.identity(), extractors=fingerprint(frozen))
    outcome = run(learner, folder, identity, settings.updates, watch, resume=resume, track=track, team=team)
    learned = part(outcome.checkpoint().tensors, "weights")
    return TrainedPart(Part(learned, {"domains": list(extractors.domains)}), outcome)
