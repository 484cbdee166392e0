"""The work behind `fewshift demo`."""

from __future__ import annotations

from pathlib import Path

import typer
from rich.text import Text

from fewshift.cli.console import out, print_table
from fewshift.cli.doctor_checks import usable_cores
from fewshift.data.contact_sheet import contact_sheet
from fewshift.data.open_suite.build import build_open_suite, choose
from fewshift.data.suites import Suite, data_folder, open_suite
from fewshift.data.whole_files import write_whole
from fewshift.errors import FewshiftError
from fewshift.evaluation.html import page
from fewshift.evaluation.report import make_report
from fewshift.evaluation.scores import read_scores
from fewshift.presets.demo import DemoPlan, run_demo
from fewshift.progress import Track
from fewshift.training.interruption import Interrupted
from fewshift.types import SPLITS


def run(wanted: str | None, folder: Path, tasks: int, seed: int, track: Track) -> None:
    """Every stage says what it does; everything it makes stays in `folder`."""
    suite = _suite(wanted, track)
    _print_domains(suite)
    folder.mkdir(parents=True, exist_ok=True)
    sheet = folder / "contact-sheet.png"
    contact_sheet(suite.domains, sheet)
    plan = DemoPlan(suite=suite.name, tasks=tasks, seed=seed)
    try:
        made = run_demo(suite.domains, folder / suite.name, plan, say=_say, track=track)
    except Interrupted as stopped:
        typer.echo(f"fewshift: {stopped}; fewshift demo goes on from there", err=True)
        raise typer.Exit(130) from None
    report = make_report(read_scores([made.results]))
    html = folder / suite.name / "report.html"
    write_whole(html, page(report, f"Fewshift demo on the {suite.name} suite").encode())
    typer.echo("")
    typer.echo(report.markdown())
    typer.echo("A narrow network, small pictures and few tasks: this shows the parts at work, not a ranking.")
    for what, path in (("report", html), ("pictures", sheet), ("kit", made.kit), ("results", made.results)):
        typer.echo(f"{what}: {path}")


def _suite(wanted: str | None, track: Track) -> Suite:
    """The suite asked for; without a wish the open one, or the drawn one where that cannot be had."""
    if wanted in (None, "open"):
        try:
            workers = min(usable_cores(), 8)
            build_open_suite(data_folder() / "open", choose([], []), workers=workers, track=track)
        except FewshiftError as problem:
            if wanted == "open":
                raise
            _say(f"the open suite cannot be had here ({problem}), so the drawn one takes its place")
            return open_suite("drawn")
    return open_suite(wanted or "open", track=track)


def _print_domains(suite: Suite) -> None:
    rows = []
    for domain in suite:
        spec = domain.spec
        classes = "/".join(str(len(spec.splits[split])) for split in SPLITS)
        images = f"{sum(spec.images_per_class):,}"
        rows.append((domain.name, domain.role, classes, images, domain.provenance.licence))
    headings = ("domain", "role", "classes", "images", "licence")
    print_table(headings, rows, right=("classes", "images"), fold=("licence",))


def _say(sentence: str) -> None:
    out.print(Text.assemble(("• ", "bold"), sentence))  # brackets in it are no markup
