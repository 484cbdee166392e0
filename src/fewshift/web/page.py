"""The page's layout, and which button calls what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr
import torch

from fewshift.data.folder import SUFFIXES
from fewshift.estimator.kits import Opened
from fewshift.web import views
from fewshift.web.actions import (
    FIRST_CLASSES,
    NOTHING_TO_TRY,
    WAITING,
    adapting,
    forgetting,
    one_more,
    remove_file,
    trying,
    watching,
)
from fewshift.web.limits import LIMITS

KEPT = 3600  # seconds an upload or a classifier is kept
METHOD_WORDS = {
    "tsp": "preconditioned",
    "tsa": "adapters",
    "gd": "plain descent",
    "pa": "last map only",
    "ncc": "no adaptation",
}


def build_page(opened: Opened, folder: Path) -> gr.Blocks:
    """The page for one kit. Uploads and downloads are below `folder`, which the caller removes."""
    with gr.Blocks(title="Fewshift", analytics_enabled=False, delete_cache=(60, KEPT)) as blocks:
        gr.HTML(views.header(opened.name))
        state = gr.State(None, time_to_live=KEPT, delete_callback=remove_file)
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
        turns = private | {"concurrency_id": queue_on(opened.device)}
        add.click(one_more, [shown], [shown, *cards, add], show_progress="hidden", **private)
        adapted = adapt.click(
            adapting(opened, folder),
            [state, method, *names, *images],
            results,
            show_progress_on=[said],
            **turns,
        )
        tried = adapted.then(trying(folder), [state, tries], [answers], show_progress="hidden", **turns)
        tried.then(watching, [state], [changes], show_progress="minimal", **turns)
        tries.change(trying(folder), [state, tries], [answers], **turns)
        everything = [*results, shown, *cards, add, *names, *images, tries, answers]
        forget.click(
            forgetting(folder), [state, *images, tries], everything, show_progress="hidden", **private
        )
    page: gr.Blocks = blocks
    return page


def queue_on(device: torch.device) -> str | None:
    """Where people wait: a GPU's precision is a setting of the process, so there they take turns."""
    return "gpu" if device.type == "cuda" else None


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
