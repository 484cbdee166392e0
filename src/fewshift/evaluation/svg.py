"""A few charts as inline SVG. Colours are CSS classes of the page, so that they follow light and dark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

from fewshift.evaluation.page_style import COLOURS
from fewshift.evaluation.statistics import Interval

WIDTH = 900.0
LABELS = 150.0  # room for names on the left


@dataclass(frozen=True)
class Group:
    """Rows under a heading; each row has one value a series, or none."""

    heading: str
    rows: Sequence[tuple[str, Sequence[Interval | None]]]


def element(tag: str, *children: str, **attributes: str | float) -> str:
    """One element; `class_` and names with an underscore are spelled as SVG spells them."""
    words = [tag]
    for name, value in attributes.items():
        text = f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else value
        words.append(f'{name.rstrip("_").replace("_", "-")}="{escape(str(text))}"')
    return f"<{' '.join(words)}>{''.join(children)}</{tag}>"


def text(x: float, y: float, content: str, class_: str = "", anchor: str = "start") -> str:
    """Words with their baseline at y."""
    return element("text", escape(content), x=x, y=y, class_=class_, text_anchor=anchor)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> str:
    """A straight line."""
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def marked(words: str, *shapes: str) -> str:
    """Shapes that say these words to whoever points at them."""
    return element("g", element("title", escape(words)), *shapes)


def picture(height: float, label: str, *children: str, width: float = WIDTH) -> str:
    """The whole drawing; it shrinks with the page or its column."""
    box = f"0 0 {width:.0f} {height:.0f}"
    return element("svg", *children, viewBox=box, role="img", aria_label=label, class_="chart")


def ticks(low: float, high: float, about: int = 6) -> list[float]:
    """Round numbers from low to high.

    >>> ticks(0, 100)
    [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]
    """
    if high <= low:
        return [low]
    rough = (high - low) / (about - 1)
    unit = 10.0 ** floor(log10(rough))
    step = next(m * unit for m in (1.0, 2.0, 2.5, 5.0, 10.0) if m * unit >= 0.999 * rough)
    first, last = ceil(low / step - 1e-9), floor(high / step + 1e-9)
    return [round(i * step, 10) for i in range(first, last + 1)]


def bars(groups: Sequence[Group], series: Sequence[str], label: str) -> str:
    """Horizontal bars with intervals, in per cent of 100; one colour a series."""
    thick, gap, left = 9.0, 9.0, LABELS
    span = WIDTH - left - 60
    y, parts = 24.0, []
    for group in groups:
        parts.append(text(4, y, group.heading, "heading"))
        y += 9
        for name, values in group.rows:
            top = y
            for i, value in enumerate(values):
                if value is not None:
                    parts.append(_bar(left, y, span, thick, value, i, f"{series[i]} on {name}"))
                y += thick + 1
            parts.append(text(left - 8, (top + y) / 2 + 3, name, "label", "end"))
            y += gap
        y += 18
    grid = []
    for tick in ticks(0, 100):
        x = left + span * tick / 100
        grid += [line(x, 12, x, y - 14, "grid"), text(x, y, f"{tick:.0f} %", "tick", "middle")]
    return picture(y + 8, label, *grid, *parts)


def _bar(left: float, y: float, span: float, thick: float, value: Interval, i: int, name: str) -> str:
    middle, end = y + thick / 2, left + span * value.mean
    low, high = left + span * max(0, value.mean - value.half), left + span * min(1, value.mean + value.half)
    return marked(
        f"{name}: {100 * value.mean:.1f} ± {100 * value.half:.1f} %",
        element("rect", x=left, y=y, width=max(0.5, end - left), height=thick, class_=f"fill{i % COLOURS}"),
        line(low, middle, high, middle, "whisker"),
        text(max(high, end) + 5, y + thick - 1, f"{100 * value.mean:.1f}", "value"),
    )


def forest(groups: Sequence[Group], series: Sequence[str], colours: Sequence[int], label: str) -> str:
    """Differences as dots with intervals about a line at zero, in percentage points."""
    found = [v for group in groups for _, values in group.rows for v in values if v is not None]
    least = 100 * min([v.mean - v.half for v in found] + [-0.001])
    most = 100 * max([v.mean + v.half for v in found] + [0.001])
    left, step, gap = LABELS, 9.0, 10.0
    span = WIDTH - left - 60

    def place(share: float) -> float:
        return left + span * (100 * share - least) / (most - least)

    y, parts = 24.0, []
    for group in groups:
        parts.append(text(4, y, group.heading, "heading"))
        y += 12
        for name, values in group.rows:
            top = y
            for i, value in enumerate(values):
                if value is not None:
                    words = f"{series[i]} on {name}: {100 * value.mean:+.1f} ± {100 * value.half:.1f} points"
                    parts.append(_dot(words, value, place, y, 3.4, colours[i]))
                y += step
            parts.append(text(left - 8, (top + y - step) / 2 + 4, name, "label", "end"))
            y += gap
        y += 16
    grid = []
    for mark in ticks(least, most, 9):
        x = place(mark / 100)
        grid.append(line(x, 12, x, y - 16, "zero" if mark == 0 else "grid"))
        grid.append(text(x, y - 2, f"{mark:+g}" if mark else "0", "tick", "middle"))
    return picture(y + 6, label, *grid, *parts)


def _dot(
    words: str, value: Interval, place: Callable[[float], float], y: float, radius: float, colour: int
) -> str:
    """A mean with its interval about it."""
    low, x, high = (place(v) for v in (value.mean - value.half, value.mean, value.mean + value.half))
    rule = line(low, y, high, y, f"range line{colour % COLOURS}")
    return marked(words, rule, element("circle", cx=x, cy=y, r=radius, class_=f"fill{colour % COLOURS}"))


def dots(rows: Sequence[tuple[str, Sequence[Interval | None]]], series: Sequence[str], label: str) -> str:
    """One line per row with a dot and its interval for each series, in per cent; one colour a series."""
    found = [v for _, values in rows for v in values if v is not None]
    least = 100 * min((v.mean - v.half for v in found), default=0.0)
    most = max(100 * max((v.mean + v.half for v in found), default=1.0), least + 1)
    left, step = LABELS, 17.0
    span = WIDTH - left - 30

    def place(share: float) -> float:
        return left + span * (100 * share - least) / (most - least)

    parts = []
    for y, (name, values) in enumerate(rows):
        middle = 22 + step * y
        parts.append(text(left - 8, middle + 4, name, "label", "end"))
        for i, value in enumerate(values):
            if value is not None:
                words = f"{name}, {series[i]}: {100 * value.mean:.1f} ± {100 * value.half:.1f} %"
                parts.append(_dot(words, value, place, middle, 4.0, i))
    bottom = 22 + step * len(rows)
    grid = []
    for mark in ticks(least, most, 9):
        x = place(mark / 100)
        grid += [line(x, 10, x, bottom - 6, "grid"), text(x, bottom + 8, f"{mark:g} %", "tick", "middle")]
    return picture(bottom + 14, label, *grid, *parts)


def heat_map(
    rows: Sequence[tuple[str, Sequence[float]]], columns: Sequence[str], rules: Sequence[int], label: str
) -> str:
    """Shares between 0 and 1 as shades with their numbers; a rule is drawn above the rows in `rules`."""
    cell = min(74.0, (WIDTH - LABELS - 10) / max(1, len(columns)))
    high, top = 22.0, 84.0
    parts = []
    for j, name in enumerate(columns):
        x = LABELS + (j + 0.5) * cell
        turn = f"rotate(-35 {x:.0f} {top - 8:.0f})"
        parts.append(element("text", escape(name), x=x, y=top - 8, class_="label", transform=turn))
    for i, (name, shares) in enumerate(rows):
        y = top + i * high
        parts.append(text(LABELS - 8, y + 15, name, "label", "end"))
        for j, share in enumerate(shares):
            x = LABELS + j * cell
            words = f"{name} from {columns[j]}: {share:.3f}"
            shade = element(
                "rect", x=x, y=y, width=cell - 1, height=high - 1, class_="shade", fill_opacity=f"{share:.3f}"
            )
            number = f"{share:.2f}".removeprefix("0") if share < 0.995 else "1"
            parts.append(marked(words, shade, text(x + cell / 2, y + 15, number, _ink(share), "middle")))
    width = LABELS + len(columns) * cell
    parts += [line(LABELS, top + i * high - 0.5, width, top + i * high - 0.5, "zero") for i in rules if i > 0]
    return picture(top + len(rows) * high + 8, label, *parts)


def _ink(share: float) -> str:
    """What can be read on a shade."""
    if share > 0.2:
        return "onshade" if share > 0.55 else "number"
    return "faint" if share < 0.05 else "tick"


@dataclass(frozen=True)
class Curve:
    """A line of a chart; faint ones stay in the background."""

    values: Sequence[float]
    colour: int
    name: str
    faint: bool = False


def curves(panels: Sequence[tuple[str, Sequence[Curve]]], label: str) -> str:
    """Loss against step, one panel a heading, all on one scale."""
    lines = [curve for _, inside in panels for curve in inside]
    most = max(v for curve in lines for v in curve.values) or 1.0
    steps = max(len(curve.values) for curve in lines) - 1
    high, top, left = 210.0, 30.0, 44.0
    wide = (WIDTH - left) / len(panels)
    inner = min(wide - 24, 420.0)
    parts = []
    for p, (heading, inside) in enumerate(panels):
        x0 = left + p * wide
        parts.append(text(x0, 18, heading, "heading"))
        for tick in ticks(0, most, 5):
            y = top + high * (1 - tick / most)
            parts.append(line(x0, y, x0 + inner, y, "grid"))
            if p == 0:
                parts.append(text(x0 - 6, y + 4, f"{tick:g}", "tick", "end"))
        for tick in ticks(0, max(steps, 1), 5):
            x = x0 + inner * tick / max(steps, 1)
            parts.append(text(x, top + high + 16, f"{tick:g}", "tick", "middle"))
        for curve in inside:
            spots = " ".join(
                f"{x0 + inner * i / max(steps, 1):.1f},{top + high * (1 - v / most):.1f}"
                for i, v in enumerate(curve.values)
            )
            kind = f"{'thin' if curve.faint else 'thick'} line{curve.colour % COLOURS}"
            parts.append(element("polyline", element("title", escape(curve.name)), points=spots, class_=kind))
    parts.append(text(left, top + high + 34, "step", "tick"))
    return picture(top + high + 40, label, *parts)
