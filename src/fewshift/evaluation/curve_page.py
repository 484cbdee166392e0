"""A learning curve as one page that asks for nothing from outside, with pictures of the mistakes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from fewshift import __version__
from fewshift.evaluation.answers import Confusion, most_confused, reliability
from fewshift.evaluation.curve_charts import confusion_map, learning_curves, reliability_diagrams
from fewshift.evaluation.curve_scores import CurveScores, Mistake
from fewshift.evaluation.curve_tables import (
    accuracy_by_shot,
    calibration_by_shot,
    confusion_at,
    differences_by_shot,
    plain,
    seconds_by_shot,
    shot_words,
)
from fewshift.evaluation.html import document, facts_list, table_html

MOST_SHOWN = 30  # classes of a matrix that can still be read

CURVE_STYLE = """
.lead{font-size:17px;line-height:1.55;margin:10px 0 18px;max-width:46em}
.diagonal{stroke:var(--soft);stroke-dasharray:4 4}.cell{fill:var(--rule);fill-opacity:.45}
.pictures{display:grid;grid-template-columns:repeat(auto-fill,minmax(150px,1fr));gap:14px;margin:14px 0}
figure{margin:0;padding:10px;min-width:0;background:var(--card);border:1px solid var(--rule);
border-radius:8px}
figure img{display:block;width:100%;height:112px;object-fit:contain;background:var(--paper);border-radius:4px}
figcaption{margin-top:8px;font-size:13px;line-height:1.4;overflow-wrap:anywhere}
figcaption .said{color:var(--c4);font-weight:600}figcaption .truth{color:var(--c2);font-weight:600}
figcaption small{display:block}
""" + "".join(f".chart text.ink{i}{{fill:var(--c{i});font-weight:600}}" for i in range(8))


def curve_page(
    found: CurveScores,
    facts: Sequence[tuple[str, str]],
    wrong: Sequence[Mistake],
    pictures: Mapping[str, str],  # file -> data address
) -> str:
    """The whole page; `wrong` are mistakes of the first method with the most shots."""
    title = f"Learning curve: {found.name}"
    method, shot = found.methods[0], found.shots[-1]
    confused = confusion_at(found, method, shot)
    body = [
        f"<h1>{escape(title)}</h1>",
        f"<p class=lead>{_lead(found)}</p>",
        facts_list(facts),
        *(f"<p class=warn>{escape(words)}</p>" for words in found.failures[:10]),
        _curve(found),
        _confusion(confused, method, shot),
        _calibration(found, method, shot),
        _mistakes(wrong, pictures, method, shot),
        f"<section><h2>Cost</h2>{table_html(seconds_by_shot(found))}</section>",
        f"<footer>made by fewshift {__version__}</footer>",
    ]
    return document(title, body, CURVE_STYLE)


def _lead(found: CurveScores) -> str:
    shot = found.shots[-1]
    first, *others = [
        (escape(plain(m)), f"{100 * found.accuracy(m, shot).mean:.1f} %") for m in found.methods
    ]
    told = f"After {shot_words(shot)}, <b>{first[0]}</b> names <b>{first[1]}</b> of new images right"
    return "; ".join([told, *(f"{name} {share}" for name, share in others)]) + "."


def _who(method: str, shot: int) -> str:
    return f"{escape(plain(method))} with {shot_words(shot)}."


def _curve(found: CurveScores) -> str:
    series = [(plain(m), [found.accuracy(m, shot) for shot in found.shots]) for m in found.methods]
    parts = [learning_curves(found.shots, series), table_html(accuracy_by_shot(found))]
    if (differences := differences_by_shot(found)) is not None:
        parts.append(table_html(differences))
    return f"<section><h2>How much do more images help?</h2>{''.join(parts)}</section>"


def _confusion(confused: Confusion, method: str, shot: int) -> str:
    few = len(confused.classes) <= MOST_SHOWN
    told = (
        "Rows: the true class; columns: what it was called, in per cent." if few else "Too many for a matrix."
    )
    chart = confusion_map(confused) if few else ""
    mixups = most_confused(confused)
    rows = "".join(
        f"<tr><th>{escape(m.truth)}</th><td>{escape(m.said)}</td><td>{m.count}</td><td>{m.share:.1%}</td></tr>"
        for m in mixups
    )
    table = (
        "<h3>Most often taken for another class</h3><div class=wide><table><thead><tr><th>class</th>"
        "<th>called</th><th>times</th><th>of its answers</th></tr></thead>"
        f"<tbody>{rows}</tbody></table></div>"
        if rows
        else "<p>No image was taken for another class.</p>"
    )
    return (
        f"<section><h2>Which classes are mixed up?</h2><p class=note>{_who(method, shot)} {told}</p>"
        f"{chart}{table}</section>"
    )


def _calibration(found: CurveScores, method: str, shot: int) -> str:
    answers = found.answers(method, shot)
    right = [a.right for a in answers]
    panels = [("after the temperature", reliability([a.probability for a in answers], right))]
    if any(a.before != a.probability for a in answers):
        panels.insert(0, ("before the temperature", reliability([a.before for a in answers], right)))
    told = (
        "Bars: the share of right answers among those of like probability, darker where there are more. "
        "On the dashed line probabilities keep their word, below it they promise too much."
    )
    return (
        f"<section><h2>Can the probabilities be trusted?</h2><p class=note>{_who(method, shot)} {told}</p>"
        f"{reliability_diagrams(panels)}{table_html(calibration_by_shot(found))}</section>"
    )


def _mistakes(wrong: Sequence[Mistake], pictures: Mapping[str, str], method: str, shot: int) -> str:
    heading = "<section><h2>Pictures of the mistakes</h2>"
    if not wrong:
        return f"{heading}<p>{escape(plain(method))} made none with {shot_words(shot)}.</p></section>"
    told = (
        "Wrong most often and most surely first. "
        "An image that is wrong every time, and surely, may be in the wrong folder."
    )
    return (
        f"{heading}<p class=note>{_who(method, shot)} {told}</p>"
        f"<div class=pictures>{''.join(_figure(m, pictures) for m in wrong)}</div></section>"
    )


def _figure(mistake: Mistake, pictures: Mapping[str, str]) -> str:
    name = escape(mistake.file.partition("/")[2])
    image = f'<img src="{escape(pictures[mistake.file])}" alt="{name}">' if mistake.file in pictures else ""
    return (
        f"<figure>{image}<figcaption>called <span class=said><bdi>{escape(mistake.said)}</bdi></span> "
        f"{mistake.probability:.0%}<br>is <span class=truth><bdi>{escape(mistake.truth)}</bdi></span>"
        f"<small><bdi>{name}</bdi></small><small>wrong {mistake.wrong} of {mistake.asked} times</small>"
        "</figcaption></figure>"
    )
