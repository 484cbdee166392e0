"""Test rates and the certainty threshold, chosen on validation tasks only.

The pair for domains trained on comes from VALID classes of the seen domains, the pair for others from the
`valid_unseen` domains; test classes and unseen domains are never looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

from fewshift.errors import FewshiftError
from fewshift.evaluation.evaluate import Setting, score
from fewshift.methods import METHODS
from fewshift.methods.build import SHARES, coefficients_of
from fewshift.methods.rates import BySeen, Pair, Share, certainty
from fewshift.nets.engine import Engine
from fewshift.nets.kit import Kit
from fewshift.presets.kept_points import Key
from fewshift.progress import Track, silent
from fewshift.types import Episode, Method

LazyEpisode: TypeAlias = Callable[[], Episode]  # read when needed: a task may be 50 MB of pixels
TUNABLE = ("pa", "tsa", "ta2", "gd", "tsp", "start", "tsp_start", "tsp_ta2", "white", "start_white")
# Methods that take what a kit's domains have learned.
OF_DOMAINS = ("start", "tsp", "tsp_start", "tsp_ta2", "start_white")

# What a kit says by method: the pairs, the points that were tried, the tasks that decided, the shares.
BY_METHOD = ("rates", "rates_tried", "rates_chosen_on", *(what for what, _ in SHARES.values()))


class Point(NamedTuple):
    """What is searched over: two rates, and how much of the learned starting values, P and Q a task takes."""

    adapters: float
    last: float
    start: float = 1.0
    matrix: float = 1.0
    common: float = 1.0
    input: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The rates that are tried: uphill along one axis at a time."""

    adapters: tuple[float, ...] = (0.0, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0)
    last: tuple[float, ...] = (0.0, 0.02, 0.05, 0.1, 0.3, 1.0, 3.0, 10.0)
    start: tuple[float, ...] = (0.0, 0.5, 1.0)  # where there are starting values
    matrix: tuple[float, ...] = (0.0, 0.5, 1.0)  # where there are both
    common: tuple[float, ...] = (0.25, 0.5, 0.75, 1.0)  # where starting values have something in common
    input: tuple[float, ...] = (0.0, 0.5, 1.0)  # where inputs are whitened
    rounds: int = 2  # passes over all axes; a pass that changes nothing ends the search


@dataclass(frozen=True)
class Tuned:
    """The best point, and the mean accuracy of every point that was tried."""

    best: Point
    tried: Mapping[Point, float] = field(default_factory=dict)


def tune(accuracy_of: Callable[[Point], float], start: Point, grid: Grid) -> Tuned:
    """Coordinate search: along each axis to both neighbours, and on while it gets better.

    Ties go to the point that was tried first.
    """
    tried = {start: accuracy_of(start)}
    best = start
    for _ in range(grid.rounds):
        before = best
        for axis in Point._fields:
            for side in (1, -1):
                while (point := _neighbour(best, axis, side, grid)) is not None:
                    if point not in tried:
                        tried[point] = accuracy_of(point)
                    if tried[point] <= tried[best]:
                        break
                    best = point
        if best == before:
            break
    return Tuned(best, tried)


def _neighbour(point: Point, axis: str, side: int, grid: Grid) -> Point | None:
    """The next value of the grid upwards or downwards, where there is one."""
    here, values = getattr(point, axis), getattr(grid, axis)
    beyond = [value for value in values if (value - here) * side > 0]
    return point._replace(**{axis: min(beyond, key=lambda value: abs(value - here))}) if beyond else None


@dataclass(frozen=True)
class ChosenRates:
    """What `choose_rates` found, ready for a kit's `info`."""

    pairs: Mapping[str, Mapping[str, list[float]]]  # method -> {"seen": [...], "unseen": [...]}
    shares: Mapping[str, Mapping[str, Mapping[str, float]]]  # what -> method -> {"seen": …, "unseen": …}
    threshold: float | None
    tried: Mapping[str, Mapping[str, list[list[float]]]]  # method -> kind -> rows: point, accuracy

    def into(self, kit: Kit, chosen_on: Mapping[str, Any] | None = None) -> Kit:
        """The kit with these rates; `chosen_on` is what it says of the tasks."""
        told = {} if chosen_on is None else {"rates_chosen_on": dict.fromkeys(self.pairs, chosen_on)}
        found = {"rates": self.pairs, **self.shares, "rates_tried": self.tried, **told}
        info = {**kit.info, **{name: {**kit.info.get(name, {}), **new} for name, new in found.items()}}
        if self.threshold is not None:
            info["certainty_threshold"] = self.threshold
        return replace(kit, info=info)


def unchosen(kit: Kit, domains: tuple[str, ...]) -> dict[str, Any]:
    """What a kit says of itself once it has another P, of these domains, or another classifier.

    What validation chose with the old ones goes; rates of methods that use neither stay.
    """
    same = kit.domains in ((), domains)
    kept = {}
    for name, told in kit.info.items():
        if name in BY_METHOD:
            kept[name] = {method: own for method, own in told.items() if same and method not in OF_DOMAINS}
        elif name not in ("classifier", "certainty_threshold", "validation"):
            kept[name] = told
    return {name: told for name, told in kept.items() if told}


def begun_at(other: Kit, kit: Kit) -> Kit:
    """The kit with another's rates and shares for methods that it has none for: a place to begin a search."""
    names = ("rates", *(what for what, _ in SHARES.values()))
    found = {name: {**other.info.get(name, {}), **kit.info.get(name, {})} for name in names}
    return replace(kit, info={**kit.info, **{name: known for name, known in found.items() if known}})


def choose_rates(
    kit: Kit,
    engine: Engine,
    methods: Sequence[str],
    seen: Sequence[LazyEpisode],
    unseen: Sequence[LazyEpisode],
    grid: Grid | None = None,
    track: Track = silent,
    known: MutableMapping[Key, float] | None = None,
) -> ChosenRates:
    """The best pair of each method on validation tasks of either kind, and the threshold between them.

    Points in `known` are not computed again, and new ones are put there.
    """
    if not seen or not unseen:
        missing = "VALID classes of seen domains" if not seen else "valid_unseen domains"
        raise FewshiftError(
            f"choosing rates needs tasks from {missing} and this suite has none: "
            "give domains their roles in its suite.json"
        )
    pairs: dict[str, dict[str, list[float]]] = {}
    shares: dict[str, dict[str, dict[str, float]]] = {}
    tried: dict[str, dict[str, list[list[float]]]] = {}
    known = {} if known is None else known
    for method in _built(kit, engine, methods):
        name = method.name
        pairs[name], tried[name] = {}, {}
        for kind, tasks in (("seen", seen), ("unseen", unseen)):
            tuned = _tune(kit, method, kind, tasks, grid or Grid(), track, known)
            pairs[name][kind] = [tuned.best.adapters, tuned.best.last]
            for axis, (what, having) in SHARES.items():
                if name in having:
                    shares.setdefault(what, {}).setdefault(name, {})[kind] = getattr(tuned.best, axis)
            tried[name][kind] = [[*point, round(value, 5)] for point, value in tuned.tried.items()]
    threshold = _threshold(kit, seen, unseen, track) if kit.classifier is not None else None
    return ChosenRates(pairs, shares, threshold, tried)


def _built(kit: Kit, engine: Engine, methods: Sequence[str]) -> list[Method]:
    """All of them before the first search: a wrong name must not cost the rates that were found before it."""
    if not methods:
        raise FewshiftError(f"there is no method to choose rates for: give some of {', '.join(TUNABLE)}")
    for name in methods:
        if name not in TUNABLE:
            raise FewshiftError(f"{name} has no rates to choose: give some of {', '.join(TUNABLE)}")
    return [METHODS[name](kit, engine, oracle=True) for name in dict.fromkeys(methods)]


def _tune(
    kit: Kit,
    method: Method,
    kind: str,
    tasks: Sequence[LazyEpisode],
    grid: Grid,
    track: Track,
    known: MutableMapping[Key, float],
) -> Tuned:
    name, published = method.name, method.rates  # type: ignore[attr-defined]
    begin = kit.info.get("rates", {}).get(name, {}).get(kind, getattr(published, kind))
    axes = [axis for axis, (_, having) in SHARES.items() if name in having]
    if kit.starts is None or kit.starts.base is None:
        axes = [axis for axis in axes if axis != "common"]
    shares = {axis: kit.info.get(SHARES[axis][0], {}).get(name, {}).get(kind, 1.0) for axis in axes}

    def accuracy_of(point: Point) -> float:
        key = (name, kind, *map(repr, point))
        if key not in known:
            known[key] = computed(point)
        return known[key]

    def computed(point: Point) -> float:
        pair = Pair(point.adapters, point.last)
        fixed = replace(method, rates=BySeen(pair, pair))  # type: ignore[type-var]
        for axis in axes:
            taken = getattr(point, axis)
            fixed = replace(fixed, **{f"{axis}_share": Share(taken, taken)})  # type: ignore[type-var]
        label = f"{name} on {kind} validation tasks at " + ", ".join(f"{value:g}" for value in point)
        scores = [score(fixed, task(), Setting()).accuracy for task in track(tasks, label=label)]
        return sum(scores) / len(scores)

    if name == "pa" or len(kit.backbone.sites) == 1:  # there are no adapters
        grid, begin = replace(grid, adapters=(0.0,)), (0.0, begin[1])
    for axis in SHARES.keys() - axes:
        grid = replace(grid, **{axis: (1.0,)})  # type: ignore[arg-type]
    return tune(accuracy_of, Point(begin[0], begin[1], **shares), grid)


def _threshold(kit: Kit, seen: Sequence[LazyEpisode], unseen: Sequence[LazyEpisode], track: Track) -> float:
    """The certainty that best tells validation tasks of seen domains from those of others, each kind half."""
    coefficients = coefficients_of(kit)

    def certainties(tasks: Sequence[LazyEpisode]) -> list[float]:
        found = (coefficients(task().task.support.images) for task in track(tasks, label="certainty"))
        return [certainty(p) for p in found if p is not None]

    return best_threshold(certainties(seen), certainties(unseen))


def best_threshold(seen: Sequence[float], unseen: Sequence[float]) -> float:
    """The cut with the largest balanced accuracy for "seen lies above"; the middle of the best gap.

    >>> best_threshold([0.9, 0.8, 0.7], [0.1, 0.3, 0.75])
    0.5
    """
    values = sorted({*seen, *unseen})
    cuts = [0.0, *((a + b) / 2 for a, b in pairwise(values)), 1.0]

    def balanced(cut: float) -> float:
        above = sum(value > cut for value in seen) / len(seen)
        below = sum(value <= cut for value in unseen) / len(unseen)
        return above + below

    return max(cuts, key=balanced)
