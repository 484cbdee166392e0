"""Predictions for many images, one bad file among which must not stop the rest."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from fewshift.data.pixels import PixelRule, prepare
from fewshift.errors import FewshiftError
from fewshift.estimator.classifier import FewShotClassifier
from fewshift.estimator.fitted import Fitted
from fewshift.estimator.inputs import name_of, pixels_of
from fewshift.estimator.modes import own_modes
from fewshift.nets.engine import Engine
from fewshift.progress import Track, silent

AT_ONCE = 64  # images per pass


@dataclass(frozen=True)
class Prediction:
    """What the classifier says of one image."""

    name: str
    ranked: tuple[tuple[Hashable, float], ...]  # (class, probability), the most probable first
    unknown_score: float
    unknown: bool


@dataclass(frozen=True)
class Unreadable:
    """An image that could not be read, and the sentence that says why."""

    name: str
    problem: str


def predictions(
    classifier: FewShotClassifier, items: Sequence[Any], track: Track = silent
) -> Iterator[Prediction | Unreadable]:
    """One answer per image, in their order, some images at a time."""
    rule, engine = classifier._opened.rule, classifier.engine_
    read = (_read(item, place, rule) for place, item in enumerate(items))
    watched = track(read, label="predicting", total=len(items))
    while some := list(islice(watched, AT_ONCE)):
        sound = [(name, image) for name, image in some if isinstance(image, Tensor)]
        names, images = [name for name, _ in sound], [image for _, image in sound]
        answers = iter(predicted(classifier.fitted_, engine, names, images) if sound else ())
        for name, image in some:
            yield Unreadable(name, image) if isinstance(image, str) else next(answers)


# What computes is wrapped, not the generator: its body would run in the caller's modes all the same.
@own_modes()
def _read(item: Any, place: int, rule: PixelRule) -> tuple[str, Tensor | str]:
    name = name_of(item, place)
    try:
        return name, prepare([pixels_of(item, name)], rule)
    except FewshiftError as problem:
        return name, str(problem)


@own_modes()
def predicted(
    fitted: Fitted, engine: Engine, names: Sequence[str], images: Sequence[Tensor]
) -> list[Prediction]:  # images of (1, 3, size, size) each
    """What a fitted classifier says of prepared images."""
    features = engine.embed(fitted.params, torch.cat([*images]).to(engine.backbone.device))
    cosines = fitted.cosines(features)
    shares, order = fitted.probabilities(cosines).sort(dim=1, descending=True, stable=True)
    scores = fitted.familiar.scores(cosines).tolist()
    labels = fitted.classes.tolist()
    found = []
    for name, places, values, score in zip(names, order.tolist(), shares.tolist(), scores, strict=True):
        ranked = tuple((labels[p], value) for p, value in zip(places, values, strict=True))
        found.append(Prediction(name, ranked, score, score > fitted.familiar.limit))
    return found
