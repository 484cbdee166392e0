"""Learning curves of runs, from the logs that they keep: as a picture, or for TensorBoard."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fewshift.data.whole_files import write_whole
from fewshift.errors import FewshiftError
from fewshift.training import journal
from fewshift.training.loop import LOG

VALIDATION = "validation"
ABOUT_THE_MACHINE = ("tasks_per_second", "images_per_second", "memory_mib", "seconds")
FEW = 40  # points that need no smoothing
FIRST = (VALIDATION, "loss", "accuracy")


@dataclass(frozen=True)
class Curve:
    """One number of a run over its steps."""

    steps: tuple[int, ...]
    values: tuple[float, ...]


def curves_of(run: Path) -> dict[str, Curve]:
    """Every number that the run's log has; those of a validation are called `validation …`."""
    log = run / LOG if run.is_dir() else run
    if not log.is_file():
        parts = ", ".join(str(found.parent) for found in sorted(run.glob(f"*/{LOG}")))
        raise FewshiftError(
            f"{run} holds several runs: give some of {parts}"
            if parts
            else f"{run} has no {LOG}: give the folder of a training run (NAME.run)"
        )
    points: dict[str, list[tuple[int, float]]] = {}
    for line in journal.read(log):
        validated = VALIDATION in line
        for name, value in line.items():
            if name == "step" or isinstance(value, bool) or not isinstance(value, (int, float)):
                continue
            called = f"{VALIDATION} {name}" if validated and name != VALIDATION else name
            points.setdefault(called, []).append((line["step"], float(value)))
    if not points and run.suffix == ".kit":
        raise FewshiftError(f"{run} is a kit and keeps no log: give the folder of its run, as NAME.run")
    if not points:
        raise FewshiftError(f"{log}: there is no whole line in it yet: wait for the run's first steps")
    return {name: Curve(*zip(*found, strict=True)) for name, found in points.items()}


def worth_drawing(runs: Sequence[Mapping[str, Curve]]) -> list[str]:
    """The names that some run has and that are of learning, not of the machine; the telling ones first."""
    names = dict.fromkeys(name for run in runs for name in run)
    kept = [name for name in names if not name.endswith(ABOUT_THE_MACHINE)]
    moving = [n for n in kept if any(len(set(run[n].values)) > 1 for run in runs if n in run)]
    return sorted(moving or kept, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))


def smoothed(curve: Curve) -> Curve:
    """Means over a fortieth of the run at a time: a step's tasks differ more than steps do."""
    width = max(1, len(curve.steps) // FEW)
    starts = range(0, len(curve.steps), width)
    steps = tuple(curve.steps[min(start + width // 2, len(curve.steps) - 1)] for start in starts)
    values = (curve.values[start : start + width] for start in starts)
    return Curve(steps, tuple(sum(part) / len(part) for part in values))


def draw(runs: Mapping[str, Mapping[str, Curve]], out: Path) -> None:
    """One panel per number, one line per run; what kind of picture is decided by the file's ending."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise FewshiftError("pictures need matplotlib: pip install 'fewshift[plot]'") from None

    names = worth_drawing(list(runs.values()))
    columns = min(3, len(names))
    rows = -(-len(names) // columns)
    figure = Figure(figsize=(4.2 * columns, 2.8 * rows), layout="constrained")
    for place, name in enumerate(names):
        axes = figure.add_subplot(rows, columns, place + 1)
        for number, (label, curves) in enumerate(runs.items()):
            if name in curves:
                curve, smooth = curves[name], smoothed(curves[name])
                few, colour = len(curve.steps) < FEW, f"C{number % 10}"  # a run's own in every panel
                marker = "o" if few else ""
                axes.plot(smooth.steps, smooth.values, marker=marker, markersize=3, color=colour, label=label)
                if not few:
                    axes.plot(curve.steps, curve.values, color=colour, linewidth=0.5, alpha=0.2)
        axes.set_title(name.replace("_", " "), fontsize=10)
        axes.set_xlabel("updates", fontsize=8)
        axes.tick_params(labelsize=8)
        axes.grid(alpha=0.25)
    if len(runs) > 1:  # beside the panels: it covers no curve, and names runs that the first panel lacks
        lines = {str(line.get_label()): line for axes in figure.axes for line in axes.get_lines()}
        known = [name for name in runs if name in lines]
        figure.legend([lines[name] for name in known], known, loc="outside right upper", fontsize=8)
    picture = io.BytesIO()
    try:
        figure.savefig(picture, format=out.suffix.removeprefix(".") or "png", dpi=120)
    except ValueError as problem:
        raise FewshiftError(f"{out}: cannot be written ({problem}): give a name like curves.png") from None
    try:
        write_whole(out, picture.getvalue())
    except OSError as problem:
        raise FewshiftError(
            f"{out}: cannot be written ({problem.strerror}): make room or give another --out"
        ) from None


def to_tensorboard(runs: Mapping[str, Mapping[str, Curve]], folder: Path) -> None:
    """Event files of every number of every run, one folder per run."""
    try:
        from torch.utils.tensorboard.writer import SummaryWriter
    except ImportError:
        raise FewshiftError("TensorBoard's files need its package: pip install 'fewshift[tb]'") from None

    for label, curves in runs.items():
        with SummaryWriter(str(folder / label)) as writer:
            for name, curve in curves.items():
                for step, value in zip(curve.steps, curve.values, strict=True):
                    writer.add_scalar(name.replace(" ", "/"), value, step)
