"""The page's charts as inline SVG."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape

from fewshift.evaluation.svg import element, line, picture, text, ticks

WIDTH = 560.0
LEFT, RIGHT = 46.0, 14.0


def curve(
    points: Sequence[tuple[float, float]], heading: str, top: float, show: Callable[[float], str], colour: int
) -> str:
    """Values over steps; the vertical axis begins at zero and ends at `top`."""
    high, above = 150.0, 28.0
    last = max(points[-1][0], 1)
    wide = WIDTH - LEFT - RIGHT

    def place(step: float, value: float) -> tuple[float, float]:
        return LEFT + wide * step / last, above + high * (1 - value / top)

    parts = [text(LEFT, 16, heading, "heading")]
    for tick in ticks(0, top, 4):
        _, y = place(0, tick)
        parts += [line(LEFT, y, WIDTH - RIGHT, y, "grid"), text(LEFT - 6, y + 4, show(tick), "tick", "end")]
    for tick in ticks(0, last, 6):
        if tick == int(tick):
            x, _ = place(tick, 0)
            parts.append(text(x, above + high + 16, f"{tick:.0f}", "tick", "middle"))
    spots = [place(step, value) for step, value in points]
    joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
    parts.append(element("polyline", points=joined, class_=f"line{colour}"))
    if len(points) < 15:
        for (x, y), (step, value) in zip(spots, points, strict=True):
            words = element("title", escape(f"after {step:.0f} steps: {show(value)}"))
            parts.append(element("circle", words, cx=x, cy=y, r=3.5, class_=f"dot{colour}"))
    parts.append(text(WIDTH - RIGHT, above + high + 32, "step", "tick", "end"))
    return picture(above + high + 38, heading, *parts, width=WIDTH)


def movement(moved: Mapping[str, Sequence[float]], heading: str) -> str:
    """How far each site moved at each step, as shades of the largest."""
    steps = max(len(lengths) for lengths in moved.values())
    largest = max((v for lengths in moved.values() for v in lengths), default=0.0) or 1.0
    left, top = 112.0, 28.0
    wide, high = (WIDTH - left - RIGHT) / steps, 13.0
    parts = [text(left, 16, heading, "heading")]
    for row, (site, lengths) in enumerate(moved.items()):
        y = top + row * high
        parts.append(text(left - 6, y + 10, site, "tick", "end"))
        for step, length in enumerate(lengths):
            words = element(
                "title", escape(f"{site}, step {step + 1}: {100 * length:.3f} % of its weights' length")
            )
            spot = {"x": left + step * wide, "y": y, "width": wide - 0.6, "height": high - 1.2}
            share = f"{(length / largest) ** 0.5:.3f}"  # the root keeps small steps visible
            back = element("rect", class_="cell", **spot)
            front = element("rect", words, class_="shade", fill_opacity=share, **spot)
            parts += [back, front]
    bottom = top + len(moved) * high
    for tick in ticks(0, steps, 6):
        if tick == int(tick) and tick > 0:
            parts.append(text(left + (tick - 0.5) * wide, bottom + 14, f"{tick:.0f}", "tick", "middle"))
    parts.append(text(WIDTH - RIGHT, bottom + 30, "step", "tick", "end"))
    return picture(bottom + 36, heading, *parts, width=WIDTH)
