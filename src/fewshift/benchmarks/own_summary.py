"""What many fits say together: paired differences with intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def summaries(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """By domain, by number of shots, by both, and of all."""
    return {
        "domains": _by(rows, lambda row: str(row["domain"])),
        "shots": _by(rows, lambda row: str(row["shot"])),
        "each": _by(rows, lambda row: f"{row['domain']} {row['shot']}"),
        "all": summary(rows),
    }


def _by(
    rows: Sequence[dict[str, Any]], name: Callable[[dict[str, Any]], str]
) -> dict[str, dict[str, float | None]]:
    names = list(dict.fromkeys(name(row) for row in rows))
    return {each: summary([row for row in rows if name(row) == each]) for each in names}


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, float | None]:
    """Means in per cent, and the paired difference with its 95% interval."""
    fit, ncc = (100 * np.array([row[name] for row in rows]) for name in ("fit", "ncc"))
    gain = fit - ncc
    confidence = 100 * float(np.mean([r["confidence"] for r in rows]))
    return {
        "tasks": len(rows),
        "fit": round(float(fit.mean()), 2),
        "ncc": round(float(ncc.mean()), 2),
        "difference": round(float(gain.mean()), 2),
        "interval": _interval(gain),
        "confidence_less_accuracy": round(confidence - float(fit.mean()), 2),
        "cross_entropy": round(float(np.mean([row["cross_entropy"] for row in rows])), 4),
        "called_unknown": round(100 * float(np.mean([row["unknown"] for row in rows])), 2),
    }


def table(outcome: dict[str, Any]) -> str:
    """The differences for people: one row per domain, with each number of shots in a column."""
    shots = list(outcome["shots"])
    heads = "".join(f"{k + ' shot' + 's' * (k != '1'):>15}" for k in shots)
    lines = [f"{'domain':<16} {'tasks':>5} {'fit':>7} {'ncc':>7}   difference{heads}"]
    for name, row in {**outcome["domains"], "all": outcome["all"]}.items():
        cells = [outcome["shots"][k] if name == "all" else outcome["each"].get(f"{name} {k}") for k in shots]
        lines.append(
            f"{name:<16} {row['tasks']:>5} {row['fit']:>7.2f} {row['ncc']:>7.2f} {_gain(row)}"
            + "".join(f"{_gain(cell) if cell else '':>15}" for cell in cells)
        )
    return "\n".join(lines)


def _gain(row: dict[str, Any]) -> str:
    interval = row["interval"]
    return f"{row['difference']:+6.2f}" + (" " * 7 if interval is None else f" ± {interval:4.2f}")


def _interval(gain: NDArray[np.float64]) -> float | None:
    """Half of the 95 % interval; one task has none."""
    return round(1.96 * float(gain.std(ddof=1)) / len(gain) ** 0.5, 2) if len(gain) > 1 else None
