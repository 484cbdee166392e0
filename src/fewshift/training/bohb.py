"""An extractor whose training was searched for by few-shot accuracy on validation classes.

Saikia, Brox & Schmid 2020. Stated in the paper: ordinary classification, no meta-learning; hyper-parameters
by BOHB with few-shot accuracy on unseen classes as the objective; then nearest centroids or a linear
classifier on frozen features. There is no public code, so the space that is searched, its ranges and the
budget are inferred: rate, weight decay and how images are varied. The paper searches more than that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from fewshift.data.protocol import VARYING, Protocol
from fewshift.data.resident import ResidentDomain
from fewshift.errors import FewshiftError
from fewshift.nets.kit import Part
from fewshift.progress import Track, silent
from fewshift.training.backbone import TrainedBackbone, train_backbone
from fewshift.training.distributed import ALONE, Team
from fewshift.training.loop import Diverged, Watch
from fewshift.training.named import owned
from fewshift.training.search import Point, Searched, search
from fewshift.training.settings import BackboneSettings


@dataclass(frozen=True)
class Range:
    """One setting that is searched: from `low` to `high`, evenly or evenly in its logarithm."""

    low: float
    high: float
    log: bool = False

    def at(self, place: float) -> float:
        """The value at a place in [0, 1]."""
        if self.log:
            return math.exp(math.log(self.low) + place * (math.log(self.high) - math.log(self.low)))
        return self.low + place * (self.high - self.low)


SPACE: Mapping[str, Range] = {
    "rate": Range(0.003, 0.3, log=True),
    "weight_decay": Range(1e-5, 1e-2, log=True),
    "saturation": Range(0.0, 0.8),
    "contrast": Range(0.0, 0.8),
    "hue": Range(0.0, 0.2),
    "pad": Range(0.0, 2.0),  # times the pad that the search starts from
    "zoom": Range(0.0, 0.7),
    "flip": Range(0.0, 1.0),  # from 0.5 on
}


@dataclass(frozen=True)
class TrainedBohb:
    """The best extractor of a search, on the CPU, and how it was found."""

    trained: TrainedBackbone
    settings: BackboneSettings
    searched: Searched

    def part(self) -> Part:
        """What a kit keeps: the weights, and every trial."""
        trials = [
            {"number": t.number, "share": t.share, "score": t.score, **values_at(t.point)}
            for t in self.searched.trials
        ]
        return Part(
            owned(self.trained.backbone.frozen), {"best": self.searched.best.number, "trials": trials}
        )


def values_at(point: Point) -> dict[str, float]:
    """The settings at a point of the cube, by name."""
    return {name: span.at(place) for (name, span), place in zip(SPACE.items(), point, strict=True)}


def settings_at(point: Point, base: BackboneSettings, share: float) -> BackboneSettings:
    """A run's settings: those of the point, and one cosine over its share of the updates."""
    values, updates = values_at(point), max(1, round(share * base.updates))
    varied = replace(
        base.augmentation,
        **{name: values[name] for name in ("saturation", "contrast", "hue", "zoom")},
        pad=round(values["pad"] * base.augmentation.pad),
        flip=values["flip"] >= 0.5,
    )
    return replace(
        base,
        rate=values["rate"],
        weight_decay=values["weight_decay"],
        augmentation=varied,
        updates=updates,
        period=updates,
    )


def train_bohb(
    domains: Mapping[str, ResidentDomain],
    base: BackboneSettings,
    folder: Path,
    *,
    configurations: int = 27,
    protocol: Protocol = VARYING,
    watch: Watch | None = None,
    resume: bool = False,
    track: Track = silent,
    team: Team = ALONE,
) -> TrainedBohb:
    """Search, and return the best extractor with the whole budget of `base.updates`.

    Every trial is a run of its own in `folder` and finished ones are not repeated on `resume`. The cost is
    that of `configurations` / 3 whole runs.
    """
    if base.validation_tasks < 1:
        raise FewshiftError("train bohb: validation tasks tell configurations apart: give one or more")
    found: dict[int, TrainedBackbone] = {}

    def evaluate(number: int, point: Point, share: float) -> float:
        settings = settings_at(point, base, share)
        try:
            found[number] = train_backbone(
                domains,
                settings,
                folder / f"{number:03d}-{settings.updates}",
                protocol=protocol,
                watch=replace(watch or Watch(log_every=50), validate_every=None),
                resume=resume or number in found,  # of few updates two shares may be the same run
                track=track,
                team=team,
            )
        except Diverged:
            found.pop(number, None)  # that of a smaller budget is not what was asked for
            return 0.0
        best = found[number].outcome.best
        if best is None:
            raise FewshiftError("train bohb: no domain has VALID tasks to score extractors by: add one")
        return best.score

    searched = search(evaluate, configurations, len(SPACE), base.seed)
    if searched.best.number not in found:
        raise FewshiftError("train bohb: every configuration diverged: give more --configurations")
    chosen = settings_at(searched.best.point, base, 1.0)
    return TrainedBohb(found[searched.best.number], chosen, searched)
