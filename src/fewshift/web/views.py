"""What the page says, as HTML. Every word that came from a person is escaped here."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from fewshift.web.charts import curve, movement
from fewshift.web.limits import LIMITS
from fewshift.web.replay import Replay
from fewshift.web.steps import Adaptation, Tried

UNMOVED = "Nothing was moved: the network is as it was, for the reason given above."
BEST = 3  # classes shown for each test image


def wrapped(*parts: str) -> str:
    """Under the page's own style."""
    return f'<div class="fs">{"".join(parts)}</div>'


def notice(sentence: str, kind: str = "") -> str:
    """A sentence in a frame; `kind` is good, bad, warn or nothing."""
    return f'<div class="notice {kind}" role="status">{escape(sentence)}</div>'


def header(kit: str) -> str:
    """The title, and what happens to uploads."""
    return wrapped(
        "<h1>Fewshift</h1>",
        "<p>Drop a few images into each class, press <b>Adapt</b>, then try images the classifier has never "
        f"seen. Everything stays on this machine. Kit: <b>{escape(kit)}</b>.</p>",
    )


def hint_of_limits() -> str:
    """What the page takes."""
    return wrapped(
        f"<p>{LIMITS.least_classes} to {LIMITS.most_classes} classes, up to {LIMITS.images_a_class} images "
        f"each, {LIMITS.file_bytes // 10**6} MB an image; one a class is enough to begin with.</p>"
    )


def empty(sentence: str) -> str:
    """A place where something will be."""
    return wrapped(f'<div class="empty">{escape(sentence)}</div>')


def summary(done: Adaptation) -> str:
    """What was fitted, by which settings and why."""
    fitted = done.fitted
    images, way = sum(fitted.counts), len(fitted.counts)
    settings = fitted.settings
    steps = "the frozen network" if settings.frozen else f"{settings.steps} steps of {done.method}"
    said = f"{way} classes from {images} images in {done.seconds:.1f} s: {steps} ({settings.why})."
    return wrapped(notice(said, "good"), *_hints(done))


def _hints(done: Adaptation) -> list[str]:
    if not done.fitted.hints:
        return []
    lines = "".join(
        f"<li><b>{escape(hint.name)}</b> is in {escape(str(hint.label))} but looks more like "
        f"{escape(str(hint.nearer_to))}</li>"
        for hint in done.fitted.hints[:6]
    )
    return [f'<div class="notice warn">Perhaps in the wrong class:<ul>{lines}</ul></div>']


def domains(done: Adaptation) -> str:
    """The coefficients as bars, the largest first."""
    shares = sorted(done.fitted.coefficients.items(), key=lambda pair: -pair[1])
    if not shares:
        return empty("This kit has no dataset classifier, so nothing is known of domains.")
    rows = [row(name, share, place == 0) for place, (name, share) in enumerate(shares)]
    return wrapped(
        "<p>How much of each training domain the images look like. The learned preconditioners are blended "
        "by these weights.</p>",
        *rows,
    )


def row(name: str, share: float, first: bool = False) -> str:
    """One bar."""
    width = f"{100 * min(max(share, 0.0), 1.0):.1f}"
    return (
        f'<div class="row{" first" if first else ""}"><span class="name" title="{escape(name)}">'
        f'{escape(name)}</span><span class="bar"><i style="width:{width}%"></i></span>'
        f'<span class="number">{100 * share:.1f} %</span></div>'
    )


def losses(done: Adaptation) -> str:
    """The support loss before each step."""
    values = done.fitted.losses
    if not values:
        return empty(UNMOVED)
    points = [(float(step), value) for step, value in enumerate(values)]
    top = max(max(values) * 1.05, 1e-3)
    return wrapped(curve(points, "support loss before each step", top, lambda v: f"{v:g}", 0))


def changes(seen: Replay) -> str:
    """What each step did: how many support images are right, and how far each site moved."""
    if not seen.moved:
        return empty(UNMOVED)
    parts = []
    if seen.right:
        points = [(float(step), 100 * share) for step, share in seen.right]
        heading = "support images right, each left out of its own class's average"
        parts.append(curve(points, heading, 100.0, lambda v: f"{v:.0f} %", 1))
    parts.append(movement(seen.moved, "how far each layer moved in each step"))
    return wrapped(*parts)


def predictions(found: Sequence[Tried]) -> str:
    """One card per image."""
    return wrapped(f'<div class="cards">{"".join(map(_card, found))}</div>')


def _card(found: Tried) -> str:
    flag = '<span class="flag">unlike any class</span>' if found.unknown else ""
    best = [(str(label), share) for label, share in found.ranked[:BEST]]
    bars = "".join(row(label, share, place == 0) for place, (label, share) in enumerate(best))
    name = escape(found.name)
    return (
        f'<div class="card"><img src="{found.thumbnail}" alt="{name}"><div>'
        f'<div class="says">{escape(best[0][0])}{flag}</div>{bars}'
        f'<div class="file" title="{name}">{name}</div></div></div>'
    )
