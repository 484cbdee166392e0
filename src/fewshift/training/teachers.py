"""A finished backbone run as a teacher of a later one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from fewshift.errors import FewshiftError
from fewshift.nets.resnet import ResNet18
from fewshift.nets.tensor_file import part
from fewshift.training.checkpoint import load_checkpoint
from fewshift.training.distill import Teacher
from fewshift.training.heads import MultiHead
from fewshift.training.loop import BEST, LAST


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
