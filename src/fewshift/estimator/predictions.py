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
from fewshift.estimator.inputs import name_of, pixels_of
from fewshift.estimator.modes import own_modes
from fewshift.progress import Track, silent

AT_ONCE = 64  # images per pass


@dataclass(frozen=True)
class Prediction:
    """What the classifier says of one image."""

    name: str
    ranked: tuple[tuple[Hashable, float], ...]  # (class, probability), the most probable first
    unknown_score: float
    unknown: bool

    @property
    def label(self) -> Hashable:
        """The most probable class."""
        return self.ranked[0][0]

    @property
    def probability(self) -> float:
        """Its probability."""
        return self.ranked[0][1]


@dataclass(frozen=True)
class Unreadable:
    """An image that could not be read, and the sentence that says why."""

    name: str
    problem: str


def predictions(
    classifier: FewShotClassifier, items: Sequence[Any], track: Track = silent
) -> Iterator[Prediction | Unreadable]:
    """One answer per image, in their order, some images at a time."""
    rule = classifier._opened.rule
    read = (_read(item, place, rule) for place, item in enumerate(items))
    watched = track(read, label="predicting", total=len(items))
    while some := list(islice(watched, AT_ONCE)):
        sound = [image for _, image in some if isinstance(image, Tensor)]
        answers = iter(_answers(classifier, torch.cat(sound)) if sound else ())
        for name, image in some:
            if isinstance(image, Tensor):
                ranked, score, unknown = next(answers)
                yield Prediction(name, ranked, score, unknown)
            else:
                yield Unreadable(name, image)


# What computes is wrapped, not the generator: its body would run in the caller's modes all the same.
@own_modes()
def _read(item: Any, place: int, rule: PixelRule) -> tuple[str, Tensor | str]:
    name = name_of(item, place)
    try:
        return name, prepare([pixels_of(item, name)], rule)
    except FewshiftError as problem:
        return name, str(problem)


@own_modes()
def _answers(
    classifier: FewShotClassifier, images: Tensor
) -> list[tuple[tuple[tuple[Hashable, float], ...], float, bool]]:
    fitted, engine = classifier.fitted_, classifier.engine_
    cosines = fitted.cosines(engine.embed(fitted.params, images.to(engine.backbone.device)))
    shares, order = fitted.probabilities(cosines).sort(dim=1, descending=True, stable=True)
    scores = fitted.familiar.scores(cosines).tolist()
    labels = fitted.classes.tolist()
    answers = []
    for places, values, score in zip(order.tolist(), shares.tolist(), scores, strict=True):
        ranked = tuple((labels[p], value) for p, value in zip(places, values, strict=True))
        answers.append((ranked, score, score > fitted.familiar.limit))
    return answers
