"""A run's teachers, which are finished runs, and the adaptors that compare the student with them."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from fewshift.errors import FewshiftError
from fewshift.nets.resnet import ResNet18
from fewshift.nets.tensor_file import part
from fewshift.training.checkpoint import load_checkpoint
from fewshift.training.distill import Distillation, Teacher, feature_loss, prediction_loss
from fewshift.training.heads import MultiHead
from fewshift.training.loop import BEST, LAST
from fewshift.training.schedule import cosine_restarts, take_step

M = TypeVar("M", bound=nn.Module)


def load_teacher(folder: Path, domain: str) -> Teacher:
    """The best network of a run of `train backbone`, with its head for this domain."""
    path = folder / BEST if (folder / BEST).exists() else folder / LAST
    state = load_checkpoint(path)
    if state.kind != "backbone":
        raise FewshiftError(f"{path} is a state of train {state.kind}: a teacher comes from train backbone")
    domains = state.identity["tasks"]["order"]
    if domain not in domains:
        raise FewshiftError(
            f"{path} was trained on {', '.join(domains)}: it cannot teach {domain}, give a run on that domain"
        )
    settings, tensors = state.identity["settings"], part(state.tensors, "model")
    classes = [len(tensors[f"heads.{place}.bias"]) for place in range(len(domains))]
    model = MultiHead(ResNet18(settings["width"], settings["stem_padding"]), classes)
    model.load_state_dict(tensors)
    head = model.heads[domains.index(domain)]
    assert isinstance(head, nn.Linear)
    return Teacher(model.net.eval(), head.eval(), images_of(state.identity["tasks"], domain))


def images_of(tasks: Mapping[str, Any], domain: str) -> dict[str, str]:
    """What a teacher and its student must share, of what a run tells: pixels and the domain's classes."""
    return {"pixels": tasks["pixels"], "classes": tasks["classes"][domain]}


def check_same_images(teacher: Teacher, tasks: Mapping[str, Any], domain: str) -> None:
    """Refuse a teacher whose head tells other classes apart, or that never saw images of this size."""
    ours = images_of(tasks, domain)
    for what, theirs in teacher.images.items():
        if theirs != ours[what]:
            raise FewshiftError(
                f"the teacher of {domain} was trained on other {what} than this run's ({theirs}, not "
                f"{ours[what]}): train the teacher on the same data"
            )


class Students:
    """Adaptors A_k from the student's to a teacher's features, and their own optimizer; they are not kept."""

    def __init__(
        self,
        teachers: Mapping[str, Teacher],
        classes: Mapping[str, int],
        dim: int,
        settings: Distillation,
        seed: int,
        device: torch.device,
    ) -> None:
        self.settings, self.domains = settings, list(classes)
        self.teachers: dict[str, Teacher] = {}
        self.adaptors: dict[str, nn.Linear] = {}
        generator = torch.Generator().manual_seed(seed)
        for domain, teacher in teachers.items():
            if domain not in classes:
                raise FewshiftError(
                    f"the teacher of {domain} has no domain to teach: leave it out or add the domain"
                )
            if teacher.head.out_features != classes[domain]:
                raise FewshiftError(
                    f"the teacher of {domain} tells {teacher.head.out_features} classes apart and the domain "
                    f"has {classes[domain]} TRAIN classes: train the teacher on the same data"
                )
            adaptor = nn.Linear(dim, teacher.head.in_features, bias=False)
            nn.init.xavier_normal_(adaptor.weight, generator=generator)
            self.adaptors[domain] = adaptor.to(device)
            self.teachers[domain] = Teacher(_still(teacher.net, device), _still(teacher.head, device))
        self.weights = {domain: adaptor.weight for domain, adaptor in self.adaptors.items()}
        self.optimizer = (
            torch.optim.Adam(
                list(self.weights.values()),
                lr=settings.adaptor_rate,
                weight_decay=settings.adaptor_weight_decay,
            )
            if self.weights
            else None
        )

    def loss(
        self,
        step: int,
        images: Sequence[Tensor],
        features: Sequence[Tensor],
        logits: Sequence[Tensor],
        counts: Sequence[int],
    ) -> Tensor:  # -> ()
        """Σ_k w_k λ_k [(1 - CKA_k) + KL_k]; teachers whose weight has expired are not asked.

        Where processes share a batch of `counts` images, each compares its own part, weighted by its size.
        """
        total = features[0].new_zeros((), dtype=torch.float32)
        for place, domain in enumerate(self.domains):
            weight = self.settings.weight(domain, step)
            if domain not in self.teachers or weight == 0:
                continue
            teacher = self.teachers[domain]
            with torch.no_grad():
                known = teacher.net(images[place])
                said = teacher.head(known)
            adapted = self.adaptors[domain](features[place])
            with torch.autocast(adapted.device.type, enabled=False):
                followed = feature_loss(adapted.float(), known.float())
                agreed = prediction_loss(logits[place].float(), said.float(), self.settings.temperature)
                total = total + weight * len(images[place]) / counts[place] * (followed + agreed)
        return total

    def step(self, step: int, period: int) -> None:
        """Move the adaptors along the gradients that were put into them."""
        if self.optimizer is not None:
            take_step(self.optimizer, cosine_restarts(self.settings.adaptor_rate, step, period))


def _still(module: M, device: torch.device) -> M:
    return copy.deepcopy(module).to(device).eval().requires_grad_(False)
