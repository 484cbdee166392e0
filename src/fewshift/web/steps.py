"""What the page does, without the page: pictures and names in, values out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from fewshift.data.decoding import decode
from fewshift.data.pixels import prepare
from fewshift.errors import FewshiftError
from fewshift.estimator.adapting import Support, Tools, adapt
from fewshift.estimator.fitted import Fitted
from fewshift.estimator.kits import Opened
from fewshift.estimator.predictions import Prediction, predicted
from fewshift.evaluation.thumbnails import thumbnail
from fewshift.progress import Track, silent
from fewshift.web.limits import LIMITS
from fewshift.web.replay import Replay, replay
from fewshift.web.uploads import ClassUploads, Upload, checked_classes

THUMBNAIL = 160  # pixels, of the longer side


@dataclass(frozen=True)
class Adaptation:
    """A fitted classifier with all that the page shows of it."""

    opened: Opened
    method: str
    support: Support
    fitted: Fitted
    seconds: float


@dataclass(frozen=True)
class Tried(Prediction):
    """One test image and what the classifier says of it."""

    thumbnail: str  # a data address: nothing of it is kept on the disk


def adapt_to(
    classes: Sequence[ClassUploads], opened: Opened, method: str = "tsp", track: Track = silent
) -> Adaptation:
    """Fit a classifier to these classes."""
    began = time.perf_counter()
    found = checked_classes(classes)
    uploads = [upload for entry in found for upload in entry.uploads]
    labels = [place for place, entry in enumerate(found) for _ in entry.uploads]
    reading = track(uploads, label="reading images", total=len(uploads))
    # one by one, so that memory does not grow with the size of photographs
    images = torch.cat([prepare([decode(each.content, each.name)], opened.rule) for each in reading])
    names = tuple(upload.name for upload in uploads)
    support = Support(images, torch.tensor(labels), names, tuple(entry.name for entry in found))
    fitted = adapt(_tools(opened, method, track), support)
    return Adaptation(opened, method, support, fitted, time.perf_counter() - began)


def watched(done: Adaptation) -> Replay:
    """What each step of the adaptation changed; it takes about as long as the last descent did."""
    return replay(_tools(done.opened, done.method, silent), done.support, done.fitted)


def _tools(opened: Opened, method: str, track: Track) -> Tools:
    return Tools(opened.kit, opened.engine, method, "auto", 0, track)


def predict(adaptation: Adaptation, uploads: Sequence[Upload]) -> tuple[Tried, ...]:
    """Each image's classes by probability, and whether it is unlike all of them."""
    if len(uploads) > LIMITS.test_images:
        raise FewshiftError(
            f"there are {len(uploads)} images to try: {LIMITS.test_images} are the most at once"
        )
    if not uploads:
        return ()
    opened, fitted = adaptation.opened, adaptation.fitted
    prepared, thumbnails = [], []
    for upload in uploads:  # one by one, so that memory does not grow with the size of photographs
        picture = decode(upload.content, upload.name)
        prepared.append(prepare([picture], opened.rule))
        thumbnails.append(thumbnail(picture, THUMBNAIL))
    found = predicted(fitted, opened.engine, [upload.name for upload in uploads], prepared)
    return tuple(
        Tried(**vars(answer), thumbnail=small) for answer, small in zip(found, thumbnails, strict=True)
    )
