"""Methods on identical tasks, one score each."""

from __future__ import annotations

import math
import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fewshift import __version__
from fewshift.errors import FewshiftError
from fewshift.evaluation.scores import Key, Score
from fewshift.types import Adapted, Episode, Labelled, Method, Task


def _versions() -> dict[str, str]:
    return {"fewshift": __version__, "torch": torch.__version__}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a score should say of the run it comes from; an episode cannot know these."""

    protocol: str = "not stated"
    pixels: str | None = None
    kit: str | None = None
    fingerprint: str | None = None
    engine: str | None = None
    roles: Mapping[str, str] = field(default_factory=dict)  # domain -> seen, valid_unseen or unseen
    specs: Mapping[str, str] = field(default_factory=dict)  # domain -> fingerprint of its spec
    versions: Mapping[str, str] = field(default_factory=_versions)


def evaluate(
    methods: Sequence[Method],
    episodes: Iterable[Episode],
    setting: Setting | None = None,
    *,
    device: torch.device | str | None = None,
    done: Container[Key] = frozenset(),
    curves: int = 3,
) -> Iterator[Score]:
    """Every method on every episode, each given the same tensors; scores come as they are made.

    Pairs whose key is in `done` are left out. The first `curves` tasks of a domain keep the losses that a
    method noted, step by step.
    """
    names = [method.name for method in methods]
    if len(set(names)) < len(names):
        raise FewshiftError(f"two methods have one name among {', '.join(names)}: give each its own")
    setting = setting or Setting()
    for episode in episodes:
        address = episode.address
        todo = [m for m in methods if Key(m.name, address.domain, address.split, address.index) not in done]
        if not todo:
            continue
        there = on_device(episode, device) if device is not None else episode
        for method in todo:
            yield score(method, there, setting, keep_losses=address.index < curves)


def on_device(episode: Episode, device: torch.device | str) -> Episode:
    """The same episode with its tensors on the device."""

    def move(images: Labelled) -> Labelled:
        return Labelled(images.images.to(device), images.labels.to(device))

    task = Task(move(episode.task.support), episode.task.way, episode.task.seen)
    return Episode(task, move(episode.query), episode.address, episode.class_ids)


def score(method: Method, episode: Episode, setting: Setting, keep_losses: bool = False) -> Score:
    """One method on one episode. A query without finite logits counts as wrong, and the score says so."""
    task, address = episode.task, episode.address
    device = task.support.images.device
    _finish(device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    start = time.perf_counter()
    adapted = method.adapt(task)
    logits = adapted(episode.query.images)
    _finish(device)
    seconds = time.perf_counter() - start
    queries = len(episode.query.labels)
    if logits.shape != (queries, task.way):
        raise FewshiftError(
            f"{method.name} gave logits of shape {tuple(logits.shape)}, expected ({queries}, {task.way}): "
            "queries by classes"
        )
    finite = torch.isfinite(logits).all(dim=1)
    correct = int(((logits.argmax(dim=1) == episode.query.labels) & finite).sum())
    lost = queries - int(finite.sum())
    role = setting.roles.get(address.domain)
    return Score(
        method=method.name,
        domain=address.domain,
        split=address.split,
        index=address.index,
        accuracy=correct / queries,
        seconds=round(seconds, 5),
        way=task.way,
        support=len(task.support.labels),
        queries=queries,
        seed=address.seed,
        protocol=setting.protocol,
        oracle=bool(adapted.notes.get("oracle", False)),
        seen=task.seen if role is None else role == "seen",
        role=role,
        revealed=task.seen is not None,
        spec=setting.specs.get(address.domain),
        pixels=setting.pixels,
        kit=setting.kit,
        fingerprint=setting.fingerprint,
        engine=setting.engine,
        device=_device_name(device),
        memory=torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None,
        failure=f"{lost} of {queries} queries have logits that are not finite" if lost else None,
        versions=setting.versions,
        notes=_notes(adapted, keep_losses),
    )


def _notes(adapted: Adapted, keep_losses: bool) -> dict[str, Any]:
    """The method's notes, short enough for a line a task."""
    left_out = {"oracle"} if keep_losses else {"oracle", "losses"}
    return {name: _short(value) for name, value in adapted.notes.items() if name not in left_out}


def _short(value: Any) -> Any:
    """Numbers at four significant digits, tensors as lists, what JSON cannot say as None or text."""
    if isinstance(value, Tensor):
        return _short(value.tolist())
    if isinstance(value, Mapping):
        return {str(name): _short(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_short(inner) for inner in value]
    if isinstance(value, float):
        return float(f"{value:.4g}") if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def _finish(device: torch.device) -> None:
    """Wait until the device has done all it was asked, so that a clock reading means something."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
