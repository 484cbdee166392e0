"""Training an extractor by classification: one domain, several at once, or several with teachers (URL).

One domain is the several-domain run with K = 1: a head over its TRAIN classes and cross-entropy. The
validation is nearest-centroid accuracy on VALID tasks, as published.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from fewshift.data.protocol import VARYING, Protocol
from fewshift.data.resident import to_device
from fewshift.nets.backbone import Backbone, freeze, named_tensors
from fewshift.nets.tensor_file import part
from fewshift.progress import Track, silent
from fewshift.training.augment import augment, draw
from fewshift.training.batches import HeldImages, image_stream
from fewshift.training.checkpoint import Kept, copy_into, identity_of
from fewshift.training.distill import Teacher
from fewshift.training.distributed import ALONE, Team, share_batch_norms
from fewshift.training.heads import memory_layout, new_multi_head, summed_cross_entropy
from fewshift.training.loop import Metrics, Outcome, Validation, Watch, run
from fewshift.training.named import fingerprint, length
from fewshift.training.schedule import cosine_restarts, take_step
from fewshift.training.settings import BackboneSettings
from fewshift.training.tasks import ResidentTasks, validation_addresses
from fewshift.training.teachers import Students, check_same_images, images_of
from fewshift.training.validation import by_domain, centroid_accuracy


@dataclass(frozen=True)
class TrainedBackbone:
    """What a run gives, on the CPU: the extractor, frozen, and the heads, so that it can teach."""

    backbone: Backbone
    teachers: Mapping[str, Teacher]  # by domain; all share the extractor
    outcome: Outcome


class BackboneLearner(Kept):
    """A shared extractor and a head a domain; with teachers also one adaptor per domain."""

    kind, unit = "backbone", "images"

    def __init__(
        self,
        domains: Mapping[str, HeldImages],
        settings: BackboneSettings,
        teachers: Mapping[str, Teacher],
        protocol: Protocol,
        team: Team,
    ) -> None:
        self.settings, self.team = settings, team
        self.tasks = ResidentTasks(domains, protocol)
        self.checked_on = validation_addresses(
            self.kind, settings.seed, self.tasks, "valid", settings.validation_tasks
        )
        self.device = self.tasks.device
        self.streams = [image_stream(d, settings.batch(name), settings.seed) for name, d in domains.items()]
        self.counts = [stream.batch for stream in self.streams]
        self.units = sum(self.counts)
        team.check_enough(min(self.counts), "images of a domain")
        classes = {stream.domain.name: stream.classes for stream in self.streams}
        self.model = new_multi_head(classes, settings.width, settings.stem_padding, settings.seed)
        if team.size > 1:
            share_batch_norms(self.model)
        self.layout = memory_layout(settings.width, self.device)
        self.model.to(self.device).to(memory_format=self.layout)  # type: ignore[call-overload]
        self.weights = {name: w for name, w in self.model.named_parameters() if w.requires_grad}
        self.optimizer = torch.optim.SGD(
            list(self.weights.values()),
            lr=settings.rate,
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
        )
        dim = self.model.net.dim
        self.students = Students(teachers, classes, dim, settings.distillation, settings.seed, self.device)
        self.parts = {"model": self.model.state_dict(), "students/adaptors": self.students.weights}
        self.moved_by = {"optimizer": (self.optimizer, self.weights)}
        if self.students.optimizer is not None:
            self.moved_by["students/optimizer"] = (self.students.optimizer, self.students.weights)
        for name, teacher in teachers.items():
            check_same_images(teacher, self.tasks.identity(), name)

    def update(self, step: int) -> Metrics:
        """Σ_k CE_k, plus what the teachers of domains say whose weight has not expired."""
        settings = self.settings
        images, labels, sizes = self._batch(step)
        self.model.train()
        with torch.autocast(self.device.type, torch.bfloat16, enabled=settings.precision == "bfloat16"):
            features, logits = self.model(images, sizes)
            entropy = summed_cross_entropy(logits, labels, self.counts)
            taught = self.students.loss(step, torch.split(images, sizes), features, logits, self.counts)
        loss = entropy + taught
        wanted = [*self.weights.values(), *self.students.weights.values()]
        gradients = torch.autograd.grad(loss, wanted, allow_unused=True, materialize_grads=True)
        right = torch.stack(
            [(a.argmax(dim=1) == b).sum() / n for a, b, n in zip(logits, labels, self.counts, strict=True)]
        ).mean()
        numbers = torch.stack([entropy.detach(), taught.detach(), right])
        self.team.add_up([numbers, *gradients])
        for weight, gradient in zip(wanted, gradients, strict=True):
            weight.grad = gradient
        rate = cosine_restarts(settings.rate, step, settings.period)
        take_step(self.optimizer, rate)
        self.students.step(step, settings.period)
        metrics: dict[str, Tensor | float] = {"loss": numbers[0] + numbers[1], "cross_entropy": numbers[0]}
        if self.students.weights:
            metrics["distillation"] = numbers[1]
        return {**metrics, "accuracy": numbers[2], "gradient_norm": length(gradients), "rate": rate}

    def validate(self) -> Validation | None:
        """Nearest-centroid accuracy on VALID tasks."""
        net = self.model.net.eval()
        return by_domain(
            self.checked_on,
            lambda address: centroid_accuracy(net, self.tasks.episode(address)),
            self.device,
            self.team,
        )

    def _batch(self, step: int) -> tuple[Tensor, list[Tensor], list[int]]:
        """This process's images of the step, varied; labels and sizes by domain."""
        chosen = np.concatenate([stream.at(step) for stream in self.streams], axis=1)
        draws = draw(
            self.settings.augmentation, self.units, np.random.default_rng([self.settings.seed, step])
        )
        names = np.repeat([stream.domain.name for stream in self.streams], self.counts)
        draws = draws.unmirrored(np.isin(names, self.settings.never_mirrored))
        ends = np.cumsum(self.counts)
        shares = [
            np.arange(e - n + self.team.rank, e, self.team.size)
            for e, n in zip(ends, self.counts, strict=True)
        ]
        mine, sizes = np.concatenate(shares), [len(share) for share in shares]
        rows, labels = to_device(chosen[:, mine], self.device)
        levels = [
            stream.domain.gather(part).permute(0, 2, 3, 1)
            for stream, part in zip(self.streams, torch.split(rows, sizes), strict=True)
        ]
        varied = augment(torch.cat(levels).permute(0, 3, 1, 2), self.settings.augmentation, draws.of(mine))
        varied = varied.contiguous(memory_format=self.layout)
        return varied, list(torch.split(labels, sizes)), sizes


def train_backbone(
    domains: Mapping[str, HeldImages],
    settings: BackboneSettings,
    folder: Path,
    *,
    teachers: Mapping[str, Teacher] | None = None,
    protocol: Protocol = VARYING,
    watch: Watch,
    resume: bool = False,
    track: Track = silent,
    team: Team = ALONE,
) -> TrainedBackbone:
    """Train an extractor on these domains' TRAIN classes; with `teachers`, as URL does.

    `protocol` is that of the VALID tasks. The best validated state is returned.
    """
    learner = BackboneLearner(domains, settings, teachers or {}, protocol, team)
    taught = {
        name: fingerprint({"net": named_tensors(t.net), "head": named_tensors(t.head)})
        for name, t in (teachers or {}).items()
    }
    identity = identity_of(settings, "updates", tasks=learner.tasks.identity(), teachers=taught)
    outcome = run(learner, folder, identity, settings.updates, watch, resume=resume, track=track, team=team)
    classes = {stream.domain.name: stream.classes for stream in learner.streams}
    model = new_multi_head(classes, settings.width, settings.stem_padding, settings.seed)
    copy_into(model.state_dict(), part(outcome.checkpoint().tensors, "model"))
    model.eval().requires_grad_(False)
    heads = {
        name: Teacher(model.net, head, images_of(learner.tasks.identity(), name))
        for name, head in zip(classes, model.heads, strict=True)
        if isinstance(head, nn.Linear)
    }
    return TrainedBackbone(freeze(model.net), heads, outcome)
