"""What the page does, without the page: pictures and names in, values out."""

from __future__ import annotations

import base64
import io
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from PIL import Image
from torch import Tensor

from fewshift.data.decoding import decode
from fewshift.data.pixels import PixelRule, prepare
from fewshift.errors import FewshiftError
from fewshift.estimator.adapting import Support, Tools, adapt
from fewshift.estimator.fitted import Fitted
from fewshift.estimator.kits import Opened
from fewshift.progress import Track, silent
from fewshift.web.limits import LIMITS
from fewshift.web.replay import Replay, replay
from fewshift.web.uploads import ClassUploads, Upload, checked_classes

THUMBNAIL = 160


@dataclass(frozen=True)
class Adaptation:
    """A fitted classifier with all that the page shows of it."""

    opened: Opened
    method: str
    support: Support
    fitted: Fitted
    seconds: float


@dataclass(frozen=True)
class Prediction:
    """One test image and what the classifier says of it."""

    name: str
    thumbnail: str  # a data address: nothing of it is kept on the disk
    shares: tuple[tuple[str, float], ...]  # (class, probability), the most probable first
    unknown: bool
    unknown_score: float


def adapt_to(
    classes: Sequence[ClassUploads],
    opened: Opened,
    method: str = "tsp",
    track: Track = silent,
) -> Adaptation:
    """Fit a classifier to these classes."""
    began = time.perf_counter()
    found = checked_classes(classes)
    pairs = [(upload, place) for place, entry in enumerate(found) for upload in entry.uploads]
    images = _prepared([upload for upload, _ in pairs], opened.rule, track)
    labels = torch.tensor([place for _, place in pairs])
    names = tuple(upload.name for upload, _ in pairs)
    support = Support(images, labels, names, tuple(entry.name for entry in found))
    fitted = adapt(_tools(opened, method, track), support)
    return Adaptation(opened, method, support, fitted, time.perf_counter() - began)


def watched(done: Adaptation) -> Replay:
    """What each step of the adaptation changed; it takes about as long as the last descent did."""
    return replay(_tools(done.opened, done.method, silent), done.support, done.fitted)


def _tools(opened: Opened, method: str, track: Track) -> Tools:
    return Tools(opened.kit, opened.engine, method, "auto", 0, track)


def predict(adaptation: Adaptation, uploads: Sequence[Upload]) -> tuple[Prediction, ...]:
    """Each image's classes by probability, and whether it is unlike all of them."""
    if len(uploads) > LIMITS.test_images:
        raise FewshiftError(
            f"there are {len(uploads)} images to try: {LIMITS.test_images} are the most at once"
        )
    if not uploads:
        return ()
    opened, fitted = adaptation.opened, adaptation.fitted
    images = _prepared(uploads, opened.rule)
    cosines = fitted.cosines(opened.engine.embed(fitted.params, images.to(opened.device)))
    unknown = fitted.familiar.scores(cosines).tolist()
    names = [str(name) for name in fitted.classes.tolist()]
    predictions = []
    rows = fitted.probabilities(cosines).tolist()
    for upload, row, score in zip(uploads, rows, unknown, strict=True):
        shares = tuple(sorted(zip(names, row, strict=True), key=lambda pair: -pair[1]))
        predictions.append(
            Prediction(upload.name, thumbnail(upload), shares, score > fitted.familiar.limit, score)
        )
    return tuple(predictions)


def thumbnail(upload: Upload) -> str:
    """The picture, small, as a data address."""
    picture = Image.fromarray(decode(upload.content, upload.name))
    picture.thumbnail((THUMBNAIL, THUMBNAIL))
    file = io.BytesIO()
    picture.save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def _prepared(
    uploads: Sequence[Upload], rule: PixelRule, track: Track = silent
) -> Tensor:  # (n, 3, size, size)
    """One by one, so that memory does not grow with the size of photographs."""
    out = torch.empty(len(uploads), 3, rule.size, rule.size)
    for place, upload in enumerate(track(uploads, label="reading images", total=len(uploads))):
        out[place] = prepare([decode(upload.content, upload.name)], rule)[0]
    return out
