"""The charts of a learning curve as inline SVG: the curve, the reliability diagram, the confusion matrix."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import pairwise

from fewshift.evaluation.answers import Bin, Confusion
from fewshift.evaluation.statistics import Interval
from fewshift.evaluation.svg import WIDTH, element, line, marked, picture, text, ticks

COLOURS = (3, 0, 1, 2, 5, 6, 7, 4)  # of the page; the first method is in strong blue, the next in grey
LONGEST = 18  # characters of a class name beside a chart; the whole name is in the tooltip


def learning_curves(shots: Sequence[int], series: Sequence[tuple[str, Sequence[Interval]]]) -> str:
    """Accuracy against images per class, with intervals; numbers of shots are evenly spaced."""
    values = [v for _, row in series for v in row]
    least = max(0.0, min(v.mean - v.half for v in values))
    most = min(1.0, max(v.mean + v.half for v in values))
    marks = ticks(100 * least, 100 * most, 6) if most > least else [100 * least]
    step = marks[1] - marks[0] if len(marks) > 1 else 5.0
    low = max(0.0, min(100 * least, marks[0] if marks else 0.0) - step / 2)
    high = min(100.0, 100 * most + step / 2)
    left, right, top, tall = 60.0, WIDTH - 150, 20.0, 300.0

    def across(place: int) -> float:
        gap = (right - left - 60) / max(1, len(shots) - 1)
        return left + 30 + place * gap if len(shots) > 1 else (left + right) / 2

    def down(percent: float) -> float:
        return top + tall * (high - percent) / (high - low or 1)

    parts = []
    for mark in ticks(low, high, 7):
        parts += [line(left, down(mark), right, down(mark), "grid")]
        parts += [text(left - 8, down(mark) + 4, f"{mark:g} %", "tick", "end")]
    for place, shot in enumerate(shots):
        parts.append(text(across(place), top + tall + 20, str(shot), "label", "middle"))
    parts.append(text((left + right) / 2, top + tall + 40, "images a class to learn from", "tick", "middle"))
    beside = across(len(shots) - 1) + 3.5 * (len(series) - 1) + 12
    ends = _apart([down(100 * row[-1].mean) for _, row in series], 15.0)
    for number, (name, row) in enumerate(series):
        colour = COLOURS[number % len(COLOURS)]
        nudge = (number - (len(series) - 1) / 2) * 7  # so that intervals do not hide each other
        spots = [(across(i) + nudge, v) for i, v in enumerate(row)]
        path = " ".join(f"{x:.1f},{down(100 * v.mean):.1f}" for x, v in spots)
        parts.append(element("polyline", points=path, class_=f"thick line{colour}"))
        for (x, v), shot in zip(spots, shots, strict=True):
            words = f"{name}, {shot} a class: {100 * v.mean:.1f} ± {100 * v.half:.1f} %"
            least_end, most_end = 100 * max(0, v.mean - v.half), 100 * min(1, v.mean + v.half)
            rule = line(x, down(least_end), x, down(most_end), f"range line{colour}")
            dot = element("circle", cx=x, cy=down(100 * v.mean), r=4.0, class_=f"fill{colour}")
            parts.append(marked(words, rule, dot))
        end = f"{name} {100 * row[-1].mean:.1f}"
        parts.append(text(beside, ends[number] + 4, end, f"ink{colour}"))
    return picture(top + tall + 50, "Accuracy against images a class, with 95 % intervals", *parts)


def _apart(places: Sequence[float], least: float) -> list[float]:
    """The same heights, moved down where two would touch."""
    found = list(places)
    order = sorted(range(len(found)), key=lambda i: found[i])
    for upper, lower in pairwise(order):
        found[lower] = max(found[lower], found[upper] + least)
    return found


def reliability_diagrams(panels: Sequence[tuple[str, Sequence[Bin]]]) -> str:
    """Share of right answers against probability; on the diagonal probabilities keep their word."""
    side, top, left = 300.0, 34.0, 60.0
    parts = []
    for number, (heading, bins) in enumerate(panels):
        x0 = left + number * (side + 110)
        most = max((b.count for b in bins), default=0) or 1
        parts.append(text(x0, 20, heading, "heading"))
        for mark in ticks(0, 100, 6):
            y, x = top + side * (1 - mark / 100), x0 + side * mark / 100
            parts += [line(x0, y, x0 + side, y, "grid"), text(x0 - 8, y + 4, f"{mark:g} %", "tick", "end")]
            parts.append(text(x, top + side + 18, f"{mark:g} %", "tick", "middle"))
        for b in bins:
            x, wide = x0 + side * b.low, side * (b.high - b.low)
            if b.count:
                tall = side * b.accuracy
                words = f"{100 * b.low:.0f} to {100 * b.high:.0f} %: {b.count} answers, mean probability "
                words += f"{100 * b.confidence:.1f} %, {100 * b.accuracy:.1f} % right"
                shade = element(
                    "rect",
                    x=x + 1.5,
                    y=top + side - tall,
                    width=wide - 3,
                    height=max(tall, 0.5),
                    class_="shade",
                    fill_opacity=f"{0.3 + 0.6 * b.count / most:.2f}",
                )
                dot = element(
                    "circle", cx=x0 + side * b.confidence, cy=top + side - tall, r=4.0, class_="fill4"
                )
                parts.append(marked(words, shade, dot))
        parts.append(line(x0, top + side, x0 + side, top, "diagonal"))
        parts.append(text(x0 + side / 2, top + side + 38, "probability of the answer", "tick", "middle"))
    return picture(top + side + 46, "Share of right answers against their probability", *parts)


def confusion_map(found: Confusion) -> str:
    """Rows: the true class; columns: what it was called, in per cent of the row."""
    names = [name if len(name) <= LONGEST else name[: LONGEST - 1] + "…" for name in found.classes]
    left, top = 20 + 7.0 * max(map(len, names)), 24 + 5.2 * max(map(len, names))
    count = len(names)
    cell = min(58.0, (WIDTH - left - 60) / count)
    tall = min(cell, 34.0)
    parts = []
    for j, name in enumerate(names):
        x = left + (j + 0.5) * cell
        words = element("title", escape(found.classes[j]))
        turn = f"rotate(-45 {x:.1f} {top - 8:.1f})"
        parts.append(element("text", words, escape(name), x=x, y=top - 8, class_="label", transform=turn))
    for i, row in enumerate(found.shares()):
        y = top + i * tall
        words = element("title", escape(found.classes[i]))
        middle = y + tall / 2 + 4
        parts.append(
            element("text", words, escape(names[i]), x=left - 8, y=middle, class_="label", text_anchor="end")
        )
        for j, share in enumerate(row):
            x = left + j * cell
            told = f"{found.classes[i]} called {found.classes[j]}: {found.counts[i][j]} times, {share:.1%}"
            spot: dict[str, str | float] = {"x": x, "y": y, "width": cell - 1.5, "height": tall - 1.5}
            shapes = [element("rect", **spot, class_="cell")]
            if share:
                colour, depth = "fill2" if i == j else "fill4", f"{0.12 + 0.88 * share:.3f}"
                shapes.append(element("rect", **spot, class_=colour, fill_opacity=depth))
            if share and cell >= 22:
                number = f"{100 * share:.0f}" if share >= 0.005 else "·"
                kind = "onshade" if share > 0.6 else "number"
                shapes.append(text(x + cell / 2 - 0.75, y + tall / 2 + 3.5, number, kind, "middle"))
            parts.append(marked(told, *shapes))
    return picture(top + count * tall + 10, "Which class is called what", *parts)
