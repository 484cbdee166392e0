"""The tasks of a learning curve: queries that stay, and support sets that grow by the same images.

Task number t shuffles every class by its own random numbers. The first images are asked about at every number
of shots, the next ones are learned from: with 5 shots those of 2 shots and three more. So methods are
compared on identical tasks, and numbers of shots on identical queries.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fewshift.data.domain import Domain, Item
from fewshift.data.folder import FolderSource, folder_domain
from fewshift.data.random import keyed_stream
from fewshift.errors import DataError, FewshiftError
from fewshift.evaluation.facts import CURVE

SHOTS = (1, 2, 5, 10)
QUERIES = 10  # per class, where its shots leave so many
MOST_CLASSES = 20  # of a task, unless asked for more


@dataclass(frozen=True)
class CurvePlan:
    """Everything that names the tasks."""

    domain: Domain
    shots: tuple[int, ...]  # increasing
    way: int
    queries: int  # a class
    tasks: int  # at each number of shots
    seed: int

    @property
    def protocol(self) -> str:
        """What decides which images a task has, besides folder, seed and shots."""
        return f"{CURVE}way={self.way},query={self.queries}"

    def file(self, item: Item) -> str:
        """An image as class/file."""
        class_id, index = item
        return f"{self.domain.spec.class_names[class_id]}/{self.source.files[class_id][index].name}"

    @property
    def source(self) -> FolderSource:
        """The files."""
        assert isinstance(self.domain.source, FolderSource)
        return self.domain.source

    @cached_property
    def fingerprint(self) -> str:
        """A short hash of all names of classes and files: lines of another folder are about other images."""
        counts = self.domain.spec.images_per_class
        names = [self.file((c, i)) for c, count in enumerate(counts) for i in range(count)]
        return hashlib.sha256(json.dumps([self.domain.name, names]).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Drawn:
    """One task at every number of shots."""

    index: int
    class_ids: tuple[int, ...]  # label -> class
    asked: tuple[tuple[int, ...], ...]  # by label: images that are asked about
    learned: tuple[tuple[int, ...], ...]  # by label: images to learn from, the first k with k shots

    def queries(self) -> list[Item]:
        """The places of the query images, class by class."""
        return [(c, i) for c, images in zip(self.class_ids, self.asked, strict=True) for i in images]

    def support(self, shot: int) -> list[Item]:
        """The places of the support images, class by class."""
        return [(c, i) for c, images in zip(self.class_ids, self.learned, strict=True) for i in images[:shot]]


def plan_curve(
    folder: Path, shots: Sequence[int] | None = None, way: int | None = None, tasks: int = 10, seed: int = 0
) -> CurvePlan:
    """The plan for a folder-a-class tree; without `shots` those of 1, 2, 5 and 10 that its classes allow."""
    domain = folder_domain(folder)
    classes = domain.spec.classes
    if classes < 2:
        only = domain.spec.class_names[0]
        raise DataError(f"{folder}: there is one class only, {only!r}: two at least can be told apart")
    if way is not None and not 2 <= way <= classes:
        raise FewshiftError(f"--way is {way}: {folder} has {classes} classes, give a number from 2 to that")
    smallest = min(domain.spec.images_per_class)
    name = domain.spec.class_names[domain.spec.images_per_class.index(smallest)]
    if shots is None:
        chosen = [shot for shot in SHOTS if shot < smallest]
    else:
        chosen = sorted(set(shots))
        if not chosen or chosen[0] < 1:
            raise FewshiftError(f"--shots is {list(shots)}: give numbers of images a class from 1 up")
        if chosen[-1] >= smallest:
            raise FewshiftError(
                f"--shots {chosen[-1]} needs {chosen[-1] + 1} images of every class, one of them to ask "
                f"about: {name!r} has {smallest}; ask for {smallest - 1} at most or add images"
            )
    return CurvePlan(
        domain,
        tuple(chosen),
        way or min(classes, MOST_CLASSES),
        min(QUERIES, smallest - chosen[-1]),
        tasks,
        seed,
    )


def draw(plan: CurvePlan, index: int) -> Drawn:
    """Task number `index`: the same on every machine, and for every choice of shots with equal queries."""
    spec = plan.domain.spec
    among = keyed_stream("curve", plan.seed, spec.name, index).sample(spec.classes, plan.way)
    class_ids = tuple(sorted(among))
    asked, learned = [], []
    for c in class_ids:
        stream = keyed_stream("curve", plan.seed, spec.name, index, spec.class_names[c])
        images = stream.sample(spec.images_per_class[c], plan.queries + plan.shots[-1])
        asked.append(tuple(images[: plan.queries]))
        learned.append(tuple(images[plan.queries :]))
    return Drawn(index, class_ids, tuple(asked), tuple(learned))
