"""Methods on identical tasks, one score each."""

from __future__ import annotations

import math
import time
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

from fewshift import __version__
from fewshift.errors import FewshiftError
from fewshift.evaluation.scores import Key, Score
from fewshift.nets.cells import moved
from fewshift.nets.packing import SMALL, TOGETHER
from fewshift.nets.together import Together
from fewshift.types import Adapted, Episode, Labelled, Method, Task

THREADS = 64  # small tasks at a time, at most


def _versions() -> dict[str, str]:
    return {"fewshift": __version__, "torch": torch.__version__}


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a score should say of the run it comes from; an episode cannot know these."""

    protocol: str = "not stated"
    pixels: str | None = None
    kit: str | None = None
    fingerprint: str | None = None
    engines: Mapping[str, str] = field(default_factory=dict)  # name -> what to say, where that is more
    roles: Mapping[str, str] = field(default_factory=dict)  # domain -> seen, valid_unseen or unseen
    specs: Mapping[str, str] = field(default_factory=dict)  # domain -> fingerprint of its spec
    versions: Mapping[str, str] = field(default_factory=_versions)

    def engine_of(self, method: Method) -> str:
        """What a score says of who runs the network for this method."""
        name = engine_of(method)
        return self.engines.get(name, name)


def evaluate(
    methods: Sequence[Method],
    episodes: Iterable[Episode],
    setting: Setting | None = None,
    *,
    device: torch.device | str | None = None,
    done: Container[Key] = frozenset(),
    curves: int = 3,
    together: Together | None = None,
) -> Iterator[Score]:
    """Every method on every episode, each given the same tensors; scores come as they are made.

    Pairs whose key is in `done` are left out. The first `curves` tasks of a domain keep the losses that a
    method noted, step by step. `together` is the engine that the methods were built with, if it can run small
    tasks together: then their scores come some at a time, in the same order.
    """
    names = [method.name for method in methods]
    if len(set(names)) < len(names):
        raise FewshiftError(f"two methods have one name among {', '.join(names)}: give each its own")
    setting = setting or Setting()

    def todo(method: Method, episode: Episode) -> bool:
        at = episode.address
        return Key(method.name, at.domain, at.split, at.index) not in done

    def by_method(group: Sequence[Episode]) -> Iterator[tuple[int, Score]]:
        for method in methods:
            places = [place for place, episode in enumerate(group) if todo(method, episode)]
            tried = attempt(method, [group[place] for place in places], together)
            for place, attempted in zip(places, tried, strict=True):
                keep = group[place].address.index < curves
                yield place, scored(method, group[place], setting, *attempted, keep_losses=keep)

    wanted = (episode for episode in episodes if any(todo(method, episode) for method in methods))
    there = wanted if device is None else moved_ahead(wanted, device)
    for group in small_together(there) if together else ([episode] for episode in there):
        made = by_method(group)
        # a method may take minutes: alone, what the others have done is not to wait for it and be lost
        yield from (score for _, score in (made if len(group) == 1 else sorted(made, key=itemgetter(0))))


def small_together(episodes: Iterable[Episode]) -> Iterator[list[Episode]]:
    """Neighbours of at most `SMALL` support images, as many as one batch holds; others alone."""
    group: list[Episode] = []
    for episode in episodes:
        size = len(episode.task.support.labels)
        held = sum(len(other.task.support.labels) for other in group)
        if group and (size > SMALL or held + size > TOGETHER or len(group) == THREADS):
            yield group
            group = []
        if size > SMALL:
            yield [episode]
        else:
            group.append(episode)
    if group:
        yield group


def moved_ahead(episodes: Iterable[Episode], device: torch.device | str) -> Iterator[Episode]:
    """The episodes on the device, each moved while the one before it is at work."""
    with ThreadPoolExecutor(1) as pool:
        waiting: Future[Episode] | None = None
        for episode in episodes:
            following = pool.submit(on_device, episode, device)
            if waiting is not None:
                yield waiting.result()
            waiting = following
        if waiting is not None:
            yield waiting.result()


def on_device(episode: Episode, device: torch.device | str) -> Episode:
    """The same episode with its tensors on the device."""
    target = torch.device(device)

    def move(images: Labelled) -> Labelled:
        return Labelled(*(moved(values, target) for values in (images.images, images.labels)))

    task = Task(move(episode.task.support), episode.task.way, episode.task.seen)
    return Episode(task, move(episode.query), episode.address, episode.class_ids)


def attempt(
    method: Method, episodes: Sequence[Episode], together: Together | None = None
) -> list[tuple[Adapted, Tensor, float]]:
    """A method on some episodes: classifiers, logits of the queries and seconds per task."""
    if not episodes:
        return []
    device = episodes[0].task.support.images.device

    def one(episode: Episode) -> tuple[Adapted, Tensor]:
        adapted = method.adapt(episode.task)
        return adapted, adapted(episode.query.images)

    _finish(device)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    start = time.perf_counter()
    if together is None or len(episodes) == 1 or not _built_with(method, together):
        found = [one(episode) for episode in episodes]
    else:
        found = together.each([partial(one, episode) for episode in episodes])
    _finish(device)
    seconds = (time.perf_counter() - start) / len(episodes)
    return [(adapted, logits, seconds) for adapted, logits in found]


def _built_with(method: Method, engine: Together) -> bool:
    return getattr(method, "engine", None) is engine


def engine_of(method: Method) -> str:
    """Methods without one use the network as it is written down, which is what `plain` does."""
    return getattr(getattr(method, "engine", None), "name", "plain")


def score(method: Method, episode: Episode, setting: Setting) -> Score:
    """One method on one episode."""
    return scored(method, episode, setting, *attempt(method, [episode])[0])


def scored(
    method: Method,
    episode: Episode,
    setting: Setting,
    adapted: Adapted,
    logits: Tensor,
    seconds: float,
    keep_losses: bool = False,
) -> Score:
    """What came of one attempt. A query without finite logits counts as wrong, and the score says so."""
    task, address = episode.task, episode.address
    device = task.support.images.device
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
        engine=setting.engine_of(method),
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
