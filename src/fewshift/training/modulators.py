"""Training the hyper-networks of Simple CNAPS and tri-M: episodes through a frozen backbone, Adam.

A task's loss is its queries' summed cross-entropy over the number of tasks per update, plus a penalty on the
gains; tri-M adds the gate's cross-entropy against the task's domain. Neither of these two is divided
(confirmed from code).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import nn

from fewshift.core.losses import accuracy
from fewshift.core.mahalanobis import class_gaussians, mahalanobis_logits
from fewshift.nets.backbone import Backbone
from fewshift.nets.film import block_norms, channels, film_backbone
from fewshift.nets.kit import Part
from fewshift.nets.modulators import CODE, CnapsModulator, Modulation, TriMModulator, gain_penalty
from fewshift.nets.tensor_file import part
from fewshift.progress import Track, silent
from fewshift.training.checkpoint import identity_of
from fewshift.training.distributed import ALONE, Team
from fewshift.training.loop import Watch, run
from fewshift.training.task_learner import EpisodeLearner, Judged, TaskSettings, TrainedPart
from fewshift.training.tasks import Sampling, TaskSource
from fewshift.types import Episode

Which: TypeAlias = Literal["cnaps", "trim"]


@dataclass(frozen=True, kw_only=True)
class ModulatorSettings(TaskSettings):
    """The defaults are the published ones of Simple CNAPS: 110,000 tasks, 16 per update."""

    updates: int = 6_875
    tasks_per_update: int = 16
    rate: float = 5e-4
    sampling: Sampling = "uniform"
    validation_tasks: int = 200
    code: int = CODE  # numbers in a set's code, filters of the encoder
    penalty: float = 1e-3  # on the squared gains
    gate: float = 0.1  # weight of the gate's cross-entropy; only tri-M has a gate


def new_modulator(which: Which, backbone: Backbone, domains: int, code: int, seed: int) -> nn.Module:
    """A fresh hyper-network whose weights the seed alone decides."""
    sites = channels(backbone, block_norms())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return CnapsModulator(sites, code) if which == "cnaps" else TriMModulator(sites, domains, code)


def task_judge(
    backbone: Backbone, modulator: nn.Module, domains: tuple[str, ...], settings: ModulatorSettings
) -> Callable[[Episode], Judged]:
    """A task's loss as a function of the hyper-network's weights; `backbone` takes FiLM."""

    def judge(episode: Episode) -> Judged:
        support, query = episode.task.support, episode.query
        found: Modulation = modulator(support.images)
        both = backbone(found.film, torch.cat([support.images, query.images]))
        classes = class_gaussians(both[: len(support.labels)], support.labels, episode.task.way)
        logits = mahalanobis_logits(both[len(support.labels) :], classes)
        entropy = F.cross_entropy(logits, query.labels)
        loss = entropy * len(query.labels) / settings.tasks_per_update
        loss = loss + settings.penalty * gain_penalty(modulator)
        numbers = {"accuracy": accuracy(logits.detach(), query.labels), "cross_entropy": entropy}
        if found.domain_logits is None:
            return Judged(loss, numbers)
        place = domains.index(episode.domain)
        gate = -found.domain_logits.log_softmax(dim=-1)[place]
        right = (found.domain_logits.argmax() == place).to(gate.dtype)
        return Judged(loss + settings.gate * gate, {**numbers, "gate": gate, "domain_accuracy": right})

    return judge


def train_modulator(
    which: Which,
    backbone: Backbone,
    tasks: TaskSource,
    settings: ModulatorSettings,
    folder: Path,
    *,
    watch: Watch,
    resume: bool = False,
    track: Track = silent,
    team: Team = ALONE,
) -> TrainedPart:
    """Meta-train Simple CNAPS's (`cnaps`) or tri-M's (`trim`) hyper-network for a frozen backbone."""
    modulator = new_modulator(which, backbone, len(tasks.domains), settings.code, settings.seed)
    modulator.to(backbone.device).train()
    judge = task_judge(film_backbone(backbone), modulator, tasks.domains, settings)
    numbers = ("cross_entropy",) if which == "cnaps" else ("cross_entropy", "gate", "domain_accuracy")
    learner = EpisodeLearner(which, dict(modulator.named_parameters()), judge, numbers, tasks, settings, team)
    identity = identity_of(settings, "updates", tasks=tasks.identity(), backbone=backbone.fingerprint())
    outcome = run(learner, folder, identity, settings.updates, watch, resume=resume, track=track, team=team)
    learned = part(outcome.checkpoint().tensors, "weights")
    return TrainedPart(Part(learned, {"code": settings.code, "domains": list(tasks.domains)}), outcome)
