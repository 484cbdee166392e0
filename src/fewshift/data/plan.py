"""Which classes and images make a task: pure functions of counts and a stream of random numbers.

Meta-Dataset's protocol in its four steps: classes, query images per class, support images per class, images.
Symbols: N classes of the task, n_c images of class c, q query images of every class, k_c shots of class c.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from fewshift.data.protocol import Protocol
from fewshift.data.random import Stream, stream_of
from fewshift.data.spec import Spec
from fewshift.errors import DataError
from fewshift.types import SPLITS, Address, Split


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """A task before its images are read: for each label a class, its support images and its query images."""

    address: Address
    protocol: str  # its name
    class_ids: tuple[int, ...]  # label -> absolute class id
    support: tuple[tuple[int, ...], ...]  # label -> indices inside the class
    query: tuple[tuple[int, ...], ...]  # label -> indices inside the class, none of them in the support

    @property
    def way(self) -> int:
        """How many classes."""
        return len(self.class_ids)

    @property
    def shots(self) -> tuple[int, ...]:
        """Support images by label."""
        return tuple(len(images) for images in self.support)


@dataclass(frozen=True)
class Choices:
    """What the tasks of one split are drawn from; made and checked once by `choices`."""

    spec: Spec
    split: Split
    protocol: Protocol
    groups: tuple[tuple[int, ...], ...]  # class ids that may share a task; one group when classes are flat
    whole: bool  # a task takes all classes of its group, up to max_way, instead of drawing how many


def choices(spec: Spec, split: Split, protocol: Protocol) -> Choices:
    """The groups of classes that can give a task, or the reason why there is none."""
    if split not in SPLITS:
        raise DataError(f"{spec.name}: there is no split {split!r}: choose one of {', '.join(SPLITS)}")
    where = f"{spec.name}, {split} split"
    usable = [c for c in spec.splits[split] if spec.images_per_class[c] >= protocol.min_images]
    fewest = protocol.way or protocol.min_way
    if len(usable) < fewest:
        of_size = f" with {protocol.min_images} images or more" if protocol.min_images else ""
        raise DataError(
            f"{where}: a task needs {fewest} classes and the split has {len(usable)}{of_size}: "
            "use another split, or a protocol of fewer ways"
        )
    grouped = protocol.grouped and spec.kind != "flat"
    hierarchical = grouped and spec.kind == "hierarchical"
    groups = _groups(spec, split, protocol, set(usable)) if grouped else (tuple(usable),)
    if not groups:
        raise DataError(
            f"{where}: a task needs {fewest} classes of one group and none of its {len(spec.groups[split])} "
            "groups can give them: use another split, or a protocol with a smaller min_way or grouped=False"
        )
    _check_sizes(spec, where, protocol, sorted(set().union(*groups)))
    return Choices(spec, split, protocol, groups, whole=hierarchical)


def _groups(spec: Spec, split: Split, protocol: Protocol, usable: set[int]) -> tuple[tuple[int, ...], ...]:
    spans = [tuple(c for c in group.class_ids if c in usable) for group in spec.groups[split]]
    most = protocol.max_span if spec.kind == "hierarchical" else spec.classes
    return tuple(span for span in spans if protocol.min_way <= len(span) <= most)


def _check_sizes(spec: Spec, where: str, protocol: Protocol, class_ids: Iterable[int]) -> None:
    needed = protocol.images_needed
    for c in class_ids:
        count = spec.images_per_class[c]
        if count < needed:
            raise DataError(
                f"{where}: class {c} ({spec.class_names[c]}) has {count} image{'' if count == 1 else 's'} "
                f"and a task needs {needed} ({protocol.shot or 1} support, {protocol.query or 1} query): "
                f"add images to the class, or leave such classes out with min_images={needed}"
            )


def choose_classes(among: Choices, stream: Stream) -> tuple[int, ...]:
    """Step 1: a group uniformly, whatever its size, then N of its classes without replacement.

    N is uniform from min_way to max_way, but a node of a hierarchy gives all its leaves up to max_way.
    """
    protocol = among.protocol
    group = among.groups[stream.below(len(among.groups))]
    most = min(protocol.max_way, len(group))
    if protocol.way is not None:
        way = protocol.way
    elif not among.whole:
        way = protocol.min_way + stream.below(most - protocol.min_way + 1)
    elif most < len(group):
        way = most
    else:
        return group
    return tuple(group[i] for i in stream.sample(len(group), way))


def query_count(images: Sequence[int], protocol: Protocol) -> int:
    """Step 2: q = min(max_query, min_c floor(n_c / 2)); with k fixed shots, min(max_query, min_c n_c - k)."""
    if protocol.query is not None:
        return protocol.query
    if protocol.shot is not None:
        return min(protocol.max_query, min(images) - protocol.shot)
    return min(protocol.max_query, min(images) // 2)


def support_size(images: Sequence[int], query: int, beta: float, protocol: Protocol) -> int:
    """Step 3a: S = min(max_support, sum_c floor(beta min(max_contribution, n_c - q) + 1))."""
    wanted = sum(math.floor(beta * min(protocol.max_contribution, n - query) + 1) for n in images)
    return min(protocol.max_support, wanted)


def shots(images: Sequence[int], query: int, size: int, log_weights: Sequence[float]) -> list[int]:
    """Step 3b: k_c = min(floor(p_c (S - N)) + 1, n_c - q), where p_c is the share of n_c exp(a_c).

    What the floors lose is not handed out again, so the support stays below S.
    """
    weights = [n * _exp(a) for n, a in zip(images, log_weights, strict=True)]
    total = math.fsum(weights)  # the built-in sum rounds differently since Python 3.12
    spare = size - len(images)
    return [min(math.floor(w / total * spare) + 1, n - query) for n, w in zip(images, weights, strict=True)]


def draw_shots(images: Sequence[int], query: int, protocol: Protocol, stream: Stream) -> list[int]:
    """Step 3: shots of every class; beta, uniform in [0, 1), is drawn first, then all a_c."""
    if protocol.shot is not None:
        return [protocol.shot] * len(images)
    beta, *uniforms = stream.uniforms(1 + len(images))
    low, high = protocol.min_log_weight, protocol.max_log_weight
    log_weights = [low + u * (high - low) for u in uniforms]
    return shots(images, query, support_size(images, query, beta, protocol), log_weights)


def plan_task(among: Choices, seed: int, index: int) -> TaskPlan:
    """The task at this address. Step 4: k_c + q images of each class, uniform without replacement."""
    if index < 0:
        raise ValueError(f"tasks are numbered from 0, not {index}")
    address = Address(seed, among.spec.name, among.split, index)
    stream = stream_of(address)
    class_ids = choose_classes(among, stream)
    images = [among.spec.images_per_class[c] for c in class_ids]
    query = query_count(images, among.protocol)
    counts = draw_shots(images, query, among.protocol, stream)
    drawn = stream.sample_each(images, [k + query for k in counts])
    return TaskPlan(
        address,
        among.protocol.name,
        class_ids,
        support=tuple(tuple(chosen[:k]) for chosen, k in zip(drawn, counts, strict=True)),
        query=tuple(tuple(chosen[k:]) for chosen, k in zip(drawn, counts, strict=True)),
    )


def plans(
    spec: Spec, split: Split, protocol: Protocol, seed: int, indices: Iterable[int]
) -> Iterator[TaskPlan]:
    """The tasks with these numbers; `itertools.count()` gives an endless stream."""
    among = choices(spec, split, protocol)
    return (plan_task(among, seed, index) for index in indices)


def describe(address: Address) -> str:
    """The address in words, for messages."""
    return f"task {address.index} of {address.domain} ({address.split} split, seed {address.seed})"


def _exp(x: float) -> float:
    """e^x by its series, with IEEE sums and products only: a platform's exp may differ in the last bit."""
    halvings = max(0, math.frexp(x)[1])  # into [-1, 1]
    x /= 2.0**halvings
    value = 1.0
    for n in range(18, 0, -1):
        value = 1.0 + value * x / n
    for _ in range(halvings):
        value *= value
    return value
