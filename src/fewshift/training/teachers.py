"""A finished backbone run as a teacher of a later one."""

from __future__ import annotations

from pathlib import Path

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
    return Teacher(model.net.eval(), head.eval())
