"""`fewshift evaluate --folder DIR`: a learning curve on own images, as tables, lines and a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fewshift.cli.console import bars, interrupted, printable
from fewshift.cli.outputs import keep_images, keep_input, make_place, write_text
from fewshift.errors import FewshiftError

if TYPE_CHECKING:
    from fewshift.estimator.curve import Contestant
    from fewshift.estimator.curve_tasks import CurvePlan
    from fewshift.estimator.kits import Opened
    from fewshift.evaluation.curve_scores import CurveScores
    from fewshift.evaluation.scores import Score
    from fewshift.progress import Track

TASKS = 10
PICTURES = 48
PAIRS_SHOWN = 5


def run_curve(
    folder: Path,
    *,
    kit: str | None,
    methods: Sequence[str] | None,
    shots: Sequence[int] | None,
    way: int | None,
    tasks: int | None,
    seed: int,
    out: Path | None,
    html: Path | None,
    device: str,
    engine: str,
    precision: str,
    quiet: bool,
) -> None:
    """Draw the tasks, score the methods, print the tables and write the page."""
    from fewshift.estimator.curve import DEFAULT_METHODS, contestants
    from fewshift.estimator.curve_tasks import plan_curve
    from fewshift.estimator.kits import open_kit
    from fewshift.evaluation.curve_scores import CurveScores
    from fewshift.nets.choice import check_precision

    plan = plan_curve(folder, shots, way, TASKS if tasks is None else tasks, seed)
    page = html or Path(f"{plan.domain.name}-curve.html")
    make_place(page, "--html", "curve.html")
    keep_images(page, "--html", folder, "curve.html")
    keep_input(page, "--html", kit, "kit", "curve.html")
    if out is not None and out.resolve() == page.resolve():
        raise FewshiftError(f"--html {page} is --out, too: the page would take the place of the scores")
    opened = open_kit(kit, device, engine, True, precision)
    check_precision(precision, opened.engine)
    asked = contestants(DEFAULT_METHODS if methods is None else methods, opened, seed)
    if not quiet:
        typer.echo(printable(_announced(plan, opened, tuple(asked))), err=True)
    try:
        scores = tuple(_scored(plan, asked, opened, out, bars(quiet)))
    except KeyboardInterrupt:
        if out is None:
            raise
        raise interrupted(f"all scores so far are in {out}") from None
    found = CurveScores(plan.domain.name, plan.domain.spec.class_names, tuple(asked), plan.shots, scores)
    if not quiet:
        _show(found)
    _write_page(page, found, folder, _facts(found, plan, opened))
    if not quiet:
        if out is not None:
            typer.echo(f"wrote {len(scores)} lines to {out}", err=True)
        typer.echo(printable(f"wrote {page}: also mix-ups and pictures of the mistakes"), err=True)


def _scored(
    plan: CurvePlan, methods: Mapping[str, Contestant], opened: Opened, out: Path | None, track: Track
) -> Iterator[Score]:
    """The scores of this curve: those that the file has, then new ones, which go into it one by one."""
    from fewshift.estimator.curve import engine_for, learning_curve, shared_facts
    from fewshift.evaluation.curve_scores import domain_of_shot
    from fewshift.evaluation.results_file import open_results
    from fewshift.evaluation.scores import read_scores

    if out is None:
        yield from learning_curve(plan, methods, opened, track=track)
        return
    domains = [domain_of_shot(plan.domain.name, shot) for shot in plan.shots]
    specs = dict.fromkeys(domains, plan.fingerprint)
    with open_results(out, shared_facts(plan, opened), specs) as results:
        if mixed := results.mixed({name: engine_for(name, opened) for name in methods}):
            typer.echo(f"fewshift: {mixed}", err=True)
        for read in read_scores([out]):
            score = read.score
            if score.method in methods and score.domain in domains and score.index < plan.tasks:
                yield score
        for score in learning_curve(plan, methods, opened, results.done, track):
            results.append(score)
            yield score


def _announced(plan: CurvePlan, opened: Opened, methods: Sequence[str]) -> str:
    from fewshift.nets.choice import named_engine

    spec = plan.domain.spec
    shots = ", ".join(map(str, plan.shots))
    return (
        f"{spec.name}: {spec.classes} classes, {sum(spec.images_per_class)} images; "
        f"{plan.tasks} task{'s' if plan.tasks > 1 else ''} of {plan.way} classes "
        f"with {shots} image{'' if plan.shots == (1,) else 's'} a class, "
        f"{plan.queries} a class to ask about; {', '.join(methods)} with the kit {opened.name}, "
        f"engine {named_engine(opened.engine)} on {opened.device}"
    )


def _show(found: CurveScores) -> None:
    from fewshift.evaluation.answers import most_confused
    from fewshift.evaluation.curve_tables import (
        accuracy_by_shot,
        calibration_by_shot,
        confusion_at,
        differences_by_shot,
        plain,
    )
    from fewshift.evaluation.tables import markdown

    tables = (accuracy_by_shot(found), differences_by_shot(found), calibration_by_shot(found))
    typer.echo("\n\n".join(markdown(table) for table in tables if table is not None))
    pairs = most_confused(confusion_at(found, found.methods[0], found.shots[-1]), PAIRS_SHOWN)
    if pairs:
        told = "".join(f"\n- {m.truth} called {m.said}: {m.share:.0%} of its answers" for m in pairs)
        typer.echo(printable(f"\n### Most often mixed up by {plain(found.methods[0])}\n{told}"))


def _write_page(path: Path, found: CurveScores, folder: Path, facts: Sequence[tuple[str, str]]) -> None:
    from fewshift.data.folder import read_image
    from fewshift.evaluation.curve_page import curve_page
    from fewshift.evaluation.curve_scores import mistakes
    from fewshift.evaluation.thumbnails import thumbnail

    wrong = mistakes(found.answers(found.methods[0], found.shots[-1]), PICTURES)
    pictures = {mistake.file: thumbnail(read_image(folder / mistake.file)) for mistake in wrong}
    write_text(path, curve_page(found, facts, wrong, pictures), "--html")


def _facts(found: CurveScores, plan: CurvePlan, opened: Opened) -> list[tuple[str, str]]:
    from fewshift.nets.choice import named_engine

    spec = plan.domain.spec
    least, most = min(spec.images_per_class), max(spec.images_per_class)
    images = f"{least}" if least == most else f"{least} to {most}"
    versions = sorted({f"{name} {version}" for s in found.scores for name, version in s.versions.items()})
    return [
        ("classes", f"{spec.classes}, with {images} images each"),
        ("tasks", f"{plan.tasks} for each number of shots, {plan.way} classes each, seed {plan.seed}"),
        ("asked about", f"{plan.queries} images a class and task, never learned from in that task"),
        ("kit", f"{opened.name}, images as {opened.rule.name}"),
        ("engine", f"{named_engine(opened.engine)} on {opened.device}"),
        ("versions", ", ".join(versions)),
    ]
