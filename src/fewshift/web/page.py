"""The page's layout and who is called when; what is done and shown is in `steps` and `views`."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import gradio as gr

from fewshift.data.decoding import READABLE
from fewshift.data.folder import SUFFIXES
from fewshift.errors import FewshiftError
from fewshift.estimator.kits import Opened
from fewshift.estimator.saved import write_classifier
from fewshift.nets.bundled import bundled_kits
from fewshift.progress import Track
from fewshift.web import views
from fewshift.web.limits import LIMITS
from fewshift.web.steps import Adaptation, adapt_to, predict
from fewshift.web.uploads import ClassUploads, read_uploads

T = TypeVar("T")
log = logging.getLogger("fewshift")
KEPT = 3600  # seconds an upload or a classifier is kept
FIRST_CLASSES = 3
METHOD_WORDS = {
    "tsp": "learned preconditioners",
    "tsa": "adapters by Adadelta",
    "gd": "plain descent",
    "pa": "last map only",
    "ncc": "no adaptation",
}
WAITING = "The result of the adaptation appears here."
NOTHING_TO_TRY = "Drop images here after adapting: each gets its class with probabilities."


def build_page(opened: Opened, folder: Path) -> gr.Blocks:
    """The page for one kit. Uploads and downloads are below `folder`, which the caller removes."""
    with gr.Blocks(title="Fewshift", analytics_enabled=False, delete_cache=(60, KEPT)) as blocks:
        gr.HTML(views.header(opened.name))
        state = gr.State(None, time_to_live=KEPT)
        shown = gr.State(FIRST_CLASSES)
        with gr.Row(equal_height=False):
            with gr.Column(scale=6, min_width=420):
                gr.HTML(views.wrapped("<h2>1 · Your classes</h2>"))
                cards, names, images = _class_cards()
                gr.HTML(views.hint_of_limits())
                with gr.Row():
                    add = gr.Button("Add a class", size="md", min_width=120, elem_id="add-class")
                    forget = gr.Button("Forget everything", size="md", min_width=120, elem_id="forget")
                with gr.Row(equal_height=True):
                    method = gr.Dropdown(
                        [(f"{name}: {words}", name) for name, words in METHOD_WORDS.items()],
                        value="tsp" if _has_tsp(opened) else "tsa",
                        label="Method",
                        show_label=False,
                        container=False,
                        min_width=200,
                        elem_id="method",
                    )
                    adapt = gr.Button("Adapt", size="md", variant="primary", min_width=120, elem_id="adapt")
            with gr.Column(scale=5, min_width=380):
                gr.HTML(views.wrapped("<h2>2 · What the adaptation did</h2>"))
                said = gr.HTML(views.empty(WAITING), elem_id="said")
                with gr.Tabs(visible=False) as details:
                    with gr.Tab("Domains"):
                        domains = gr.HTML(elem_id="domains")
                    with gr.Tab("Loss"):
                        losses = gr.HTML(elem_id="losses")
                    with gr.Tab("Steps"):
                        changes = gr.HTML(elem_id="changes")
                download = gr.DownloadButton(
                    "Download the classifier", size="md", visible=False, elem_id="download"
                )
        gr.HTML(views.wrapped("<h2>3 · Try it</h2>"))
        tries = _drop_zone("Images to classify", "tries", 130)
        answers = gr.HTML(views.empty(NOTHING_TO_TRY), elem_id="answers")

        results = [state, said, details, domains, losses, changes, download]
        private: dict[str, Any] = {"api_visibility": "private"}
        add.click(_one_more, [shown], [shown, *cards, add], show_progress="hidden", **private)
        adapt.click(
            _adapting(opened, folder), [method, *names, *images], results, show_progress_on=[said], **private
        ).then(_trying(folder), [state, tries], [answers], show_progress="hidden", **private)
        tries.change(_trying(folder), [state, tries], [answers], **private)
        everything = [*results, shown, *cards, add, *names, *images, tries, answers]
        forget.click(_forgetting(folder), [*images, tries], everything, show_progress="hidden", **private)
    page: gr.Blocks = blocks
    return page


def _has_tsp(opened: Opened) -> bool:
    return opened.kit.preconditioners is not None and opened.kit.classifier is not None


def _class_cards() -> tuple[list[gr.Column], list[gr.Textbox], list[gr.Gallery]]:
    cards, names, images = [], [], []
    with gr.Row(elem_id="classes"):
        for place in range(1, LIMITS.most_classes + 1):
            with gr.Column(min_width=200, visible=place <= FIRST_CLASSES, elem_classes="class") as card:
                name = gr.Textbox(
                    f"class {place}",
                    label=f"Name of class {place}",
                    show_label=False,
                    container=False,
                    max_length=LIMITS.name_length,
                    max_lines=1,
                    elem_id=f"name-{place}",
                )
                names.append(name)
                images.append(_drop_zone(f"Images of class {place}", f"images-{place}", 150))
            cards.append(card)
    return cards, names, images


def _drop_zone(label: str, name: str, height: int) -> gr.Gallery:
    return gr.Gallery(
        label=label,
        show_label=False,
        type="filepath",
        file_types=sorted(SUFFIXES),
        interactive=True,
        sources=["upload"],
        columns=5,
        height=height,
        object_fit="cover",
        allow_preview=False,
        buttons=[],
        elem_id=name,
        elem_classes="drop",
    )


def _one_more(shown: int) -> list[Any]:
    shown = min(shown + 1, LIMITS.most_classes)
    return [shown, *_visible(shown)]


def _visible(shown: int) -> list[Any]:
    cards = [gr.Column(visible=place < shown) for place in range(LIMITS.most_classes)]
    return [*cards, gr.Button(interactive=shown < LIMITS.most_classes)]


def _adapting(opened: Opened, folder: Path) -> Callable[..., list[Any]]:
    def adapt(method: str, *fields: Any, progress: gr.Progress = gr.Progress()) -> list[Any]:  # noqa: B008
        names, galleries = fields[: LIMITS.most_classes], fields[LIMITS.most_classes :]

        def work() -> list[Any]:
            classes = [
                ClassUploads(name or "", read_uploads(_paths(gallery), folder))
                for name, gallery in zip(names, galleries, strict=True)
            ]
            done = adapt_to(classes, opened, method, _track(progress))
            return _shown(done, _saved(done, folder))

        return _answered(work, _not_adapted)

    return adapt


def _shown(done: Adaptation, file: Path) -> list[Any]:
    return [
        done,
        views.summary(done),
        gr.Tabs(visible=True),
        views.domains(done),
        views.losses(done),
        views.changes(done),
        gr.DownloadButton(value=str(file), visible=True),
    ]


def _not_adapted(sentence: str) -> list[Any]:
    hidden = [gr.Tabs(visible=False), "", "", "", gr.DownloadButton(value=None, visible=False)]
    return [None, views.wrapped(views.notice(sentence, "bad")), *hidden]


def _trying(folder: Path) -> Callable[..., str]:
    def classify(done: Adaptation | None, gallery: Any) -> str:
        paths = _paths(gallery)
        if not paths:
            return views.empty(NOTHING_TO_TRY)
        if done is None:
            return views.wrapped(views.notice("Adapt first: there is no classifier yet.", "warn"))

        def work() -> str:
            return views.predictions(predict(done, read_uploads(paths, folder)))

        return _answered(work, lambda sentence: views.wrapped(views.notice(sentence, "bad")))

    return classify


def _forgetting(folder: Path) -> Callable[..., list[Any]]:
    def forget(*galleries: Any) -> list[Any]:
        for path in (path for gallery in galleries for path in _paths(gallery)):
            if path.resolve().is_relative_to(folder.resolve()):
                path.unlink(missing_ok=True)
        hidden = [gr.Tabs(visible=False), "", "", "", gr.DownloadButton(value=None, visible=False)]
        names = [f"class {place}" for place in range(1, LIMITS.most_classes + 1)]
        cards = [FIRST_CLASSES, *_visible(FIRST_CLASSES), *names, *[None] * LIMITS.most_classes]
        return [None, views.empty(WAITING), *hidden, *cards, None, views.empty(NOTHING_TO_TRY)]

    return forget


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
    """Whatever goes wrong becomes a sentence on the page; what is our own fault goes to the terminal, too."""
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
