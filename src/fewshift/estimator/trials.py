"""What held-out support images say of an adaptation, along its whole way.

Half of each class is held out in turn. The rest is adapted on as the whole would be, and after a few steps at
a time the held-out half is compared with the prototypes: one descent per half gives the whole stopping curve,
and the honest cosines that calibration needs. Both together cost about one adaptation on the whole set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fewshift.core.centroids import cosine_logits, prototypes
from fewshift.core.updates import Preconditioned, Update
from fewshift.nets.engine import Engine, FoldedEngine, PlainEngine
from fewshift.types import Labelled, Task, TaskParams

SCALE = 10.0  # of the cosine in every published method
MOST = 100  # images of a trial: more of them say little more, and cost as much as the fit itself


@dataclass(frozen=True)
class Fold:
    """Places of the images that are adapted on and of those that are held out."""

    kept: Tensor  # (k,)
    held: Tensor  # (h,)


@dataclass(frozen=True)
class HeldOut:
    """Held-out images against prototypes that have not seen them."""

    cosines: Tensor  # (h, way)
    labels: Tensor  # (h,)
    places: Tensor  # (h,) in the support set

    def losses(self, scale: float = SCALE) -> Tensor:  # (h,)
        """The cross-entropy of each image."""
        return F.cross_entropy(scale * self.cosines, self.labels, reduction="none")

    def accuracy(self) -> float:
        """The share that is nearest to its own class."""
        return float((self.cosines.argmax(1) == self.labels).double().mean())


class Carried:
    """An update whose state outlives a call of `Engine.adapt`, so that a descent can be taken in parts."""

    def __init__(self, update: Update[Any], tick: Callable[[], None]) -> None:
        self.update, self.tick = update, tick
        self.state: Any = None
        self.begun = False

    def init(self, params: TaskParams) -> Any:
        """The state where the last part ended."""
        if not self.begun:
            self.state, self.begun = self.update.init(params), True
        return self.state

    def step(self, params: TaskParams, gradients: TaskParams, state: Any) -> tuple[TaskParams, Any]:
        """One step at every site."""
        moved, self.state = self.update.step(params, gradients, state)
        self.tick()
        return moved, self.state


def halves(labels: Tensor, seed: int, most: int = MOST) -> tuple[Fold, Fold] | None:  # (n,)
    """Each class in two halves, by chance; None where no class has two images.

    A class with one image is adapted on both times and never held out. Of large sets a part is drawn.
    """
    generator = torch.Generator().manual_seed(seed)
    sides: tuple[list[int], list[int]] = ([], [])
    always: list[int] = []
    classes = [torch.nonzero(labels == c)[:, 0] for c in sorted(set(labels.tolist()))]
    each = max(2, most // len(classes))
    for number, places in enumerate(classes):
        drawn = places[torch.randperm(len(places), generator=generator)][:each].tolist()
        if len(drawn) == 1:
            always += drawn
            continue
        ahead = len(sides[0]) - len(sides[1])
        turn = int(ahead > 0) if ahead else number  # a larger half goes to the side that has fewer images
        for place in drawn:
            sides[turn % 2].append(place)
            turn += 1
    if not sides[0]:
        return None
    first, second = (torch.tensor(sorted(side)) for side in sides)
    extra = torch.tensor(always, dtype=torch.int64)
    return Fold(torch.cat([second, extra]), first), Fold(torch.cat([first, extra]), second)


@dataclass
class _Way:
    """One fold on its way: where its parameters are."""

    task: Task
    fold: Fold
    start: TaskParams
    params: TaskParams
    update: Update[Any]
    taken: int = 0

    def go_to(self, engine: Engine, stop: int) -> None:
        """Take the steps that are missing; a rule whose memory is lost between calls begins again."""
        if stop == self.taken:
            return
        if isinstance(self.update, Carried | Preconditioned):
            self.params = engine.adapt(self.task, self.params, self.update, stop - self.taken).params
        else:
            self.params = engine.adapt(self.task, self.start, self.update, stop).params
        self.taken = stop


def watched(engine: Engine, update: Update[Any], tick: Callable[[], None]) -> Update[Any]:
    """The rule with a watcher where steps are taken one by one; other engines know rules by their type."""
    return Carried(update, tick) if isinstance(engine, PlainEngine | FoldedEngine) else update


def held_out_along(
    engine: Engine,
    task: Task,
    folds: Sequence[Fold],
    start: TaskParams,
    update: Callable[[], Update[Any]],
    stops: Sequence[int],
    tick: Callable[[], None],
) -> Iterator[tuple[int, HeldOut]]:
    """(steps taken, held-out cosines) at every stop, both folds in step; the caller may stop early."""
    ways = []
    for fold in folds:
        part = Labelled(task.support.images[fold.kept], task.support.labels[fold.kept])
        ways.append(_Way(Task(part, task.way), fold, start, start, watched(engine, update(), tick)))
    for stop in stops:
        for way in ways:
            way.go_to(engine, stop)
        yield stop, _gathered([held_out(engine, task, way.fold, way.params) for way in ways])


def held_out(engine: Engine, task: Task, fold: Fold, params: TaskParams) -> HeldOut:
    """The held-out images of one fold under these parameters."""
    images, labels = task.support.images, task.support.labels
    both = engine.embed(params, images[torch.cat([fold.kept, fold.held])])
    centres = prototypes(both[: len(fold.kept)], labels[fold.kept], task.way)
    return HeldOut(cosine_logits(both[len(fold.kept) :], centres, 1.0), labels[fold.held], fold.held)


def _gathered(parts: Sequence[HeldOut]) -> HeldOut:
    return HeldOut(
        torch.cat([part.cosines for part in parts]),
        torch.cat([part.labels for part in parts]),
        torch.cat([part.places for part in parts]),
    )


def leave_one_out(features: Tensor, labels: Tensor, way: int) -> HeldOut:  # (n, d), (n,)
    """Every image of a class of two or more against prototypes of all other images."""
    centres = prototypes(features, labels, way)
    counts = torch.bincount(labels, minlength=way).to(features.dtype)
    places = torch.nonzero(counts[labels] > 1)[:, 0]
    own = labels[places]
    shares = counts[own][:, None]
    without = (centres[own] * shares - features[places]) / (shares - 1)
    cosines = cosine_logits(features[places], centres, 1.0)
    nearest = (F.normalize(features[places], dim=1) * F.normalize(without, dim=1)).sum(1)
    cosines[torch.arange(len(places)), own] = nearest
    return HeldOut(cosines, own, places)
