"""What the page's buttons do, as functions that gradio calls with the values of its components."""

from __future__ import annotations

import logging
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import gradio as gr

from fewshift.data.decoding import READABLE
from fewshift.errors import FewshiftError
from fewshift.estimator.kits import Opened
from fewshift.estimator.saved import write_classifier
from fewshift.nets.bundled import bundled_kits
from fewshift.progress import Track
from fewshift.web import views
from fewshift.web.limits import LIMITS
from fewshift.web.steps import Adaptation, adapt_to, predict, watched
from fewshift.web.uploads import ClassUploads, read_uploads

T = TypeVar("T")
log = logging.getLogger("fewshift")
FIRST_CLASSES = 3
WAITING = "The result of the adaptation appears here."
WATCHING = "The adaptation is taken once more to watch its steps."
NOTHING_TO_TRY = "Drop images here after adapting: each gets its class with probabilities."


@dataclass(frozen=True)
class Fit:
    """What the server keeps for one person."""

    done: Adaptation
    file: Path  # the download, alone in its folder


def one_more(shown: int) -> list[Any]:
    """Show another class."""
    shown = min(shown + 1, LIMITS.most_classes)
    return [shown, *_visible(shown)]


def _visible(shown: int) -> list[Any]:
    cards = [gr.Column(visible=place < shown) for place in range(LIMITS.most_classes)]
    return [*cards, gr.Button(interactive=shown < LIMITS.most_classes)]


def adapting(opened: Opened, folder: Path) -> Callable[..., list[Any]]:
    """Fit the classes and show what the adaptation did."""

    def adapt(
        before: Fit | None,
        method: str,
        *fields: Any,
        progress: gr.Progress = gr.Progress(),  # noqa: B008
    ) -> list[Any]:
        remove_file(before)
        names, galleries = fields[: LIMITS.most_classes], fields[LIMITS.most_classes :]

        def work() -> list[Any]:
            classes = [
                ClassUploads(name or "", read_uploads(_paths(gallery), folder))
                for name, gallery in zip(names, galleries, strict=True)
            ]
            done = adapt_to(classes, opened, method, _track(progress))
            return _shown(Fit(done, _saved(done, folder)))

        return _answered(work, _not_adapted)

    return adapt


def _shown(fit: Fit) -> list[Any]:
    done = fit.done
    return [
        fit,
        views.summary(done),
        gr.Tabs(visible=True),
        views.domains(done),
        views.losses(done),
        views.empty(WATCHING),
        gr.DownloadButton(value=str(fit.file), visible=True),
    ]


def _not_adapted(sentence: str) -> list[Any]:
    return [None, _refused(sentence), *_no_results()]


def _no_results() -> list[Any]:
    return [gr.Tabs(visible=False), "", "", "", gr.DownloadButton(value=None, visible=False)]


def _refused(sentence: str) -> str:
    return views.wrapped(views.notice(sentence, "bad"))


def trying(folder: Path) -> Callable[..., str]:
    """Classify the images that were dropped."""

    def classify(fit: Fit | None, gallery: Any) -> str:
        paths = _paths(gallery)
        if not paths:
            return views.empty(NOTHING_TO_TRY)
        if fit is None:
            return views.wrapped(views.notice("Adapt first: there is no classifier yet.", "warn"))

        def work() -> str:
            return views.predictions(predict(fit.done, read_uploads(paths, folder)))

        return _answered(work, _refused)

    return classify


def watching(fit: Fit | None) -> str:
    """Show what each step changed."""
    if fit is None:
        return ""
    done = fit.done
    return _answered(lambda: views.changes(watched(done)), _refused)


def forgetting(folder: Path) -> Callable[..., list[Any]]:
    """Empty the page and remove its files at once."""

    def forget(fit: Fit | None, *galleries: Any) -> list[Any]:
        remove_file(fit)
        for path in (path for gallery in galleries for path in _paths(gallery)):
            if path.resolve().is_relative_to(folder.resolve()):
                path.unlink(missing_ok=True)
        names = [f"class {place}" for place in range(1, LIMITS.most_classes + 1)]
        cards = [FIRST_CLASSES, *_visible(FIRST_CLASSES), *names, *[None] * LIMITS.most_classes]
        return [None, views.empty(WAITING), *_no_results(), *cards, None, views.empty(NOTHING_TO_TRY)]

    return forget


def remove_file(fit: Fit | None) -> None:
    """Remove the download of somebody who is gone."""
    if fit is not None:
        shutil.rmtree(fit.file.parent, ignore_errors=True)


def _saved(done: Adaptation, folder: Path) -> Path:
    """The file for the download; it holds the backbone where its kit is not one that everybody has."""
    place = folder / "fitted" / secrets.token_hex(16)
    place.mkdir(parents=True)
    alone = done.opened.name not in bundled_kits()
    write_classifier(
        place / "classifier.fewshift", done.fitted, done.opened, done.method, with_backbone=alone
    )
    return place / "classifier.fewshift"


def _paths(gallery: Sequence[tuple[str, str | None]] | None) -> list[Path]:
    return [Path(path) for path, _ in gallery or ()]


def _answered(work: Callable[[], T], instead: Callable[[str], T]) -> T:
    """An error becomes a sentence on the page; one that is our own fault goes to the terminal, too."""
    try:
        return work()
    except FewshiftError as problem:
        return instead(f"{problem}.")
    except Exception as problem:
        log.exception("the page could not do that")
        return instead(
            f"That did not work here ({type(problem).__name__}); the terminal says more. "
            f"Images must be {READABLE} files."
        )


def _track(progress: gr.Progress) -> Track:
    def track(items: Iterable[T], /, *, label: str, total: int | None = None) -> Iterator[T]:
        for place, item in enumerate(items):
            progress((place, total), desc=label)
            yield item

    return track
