"""`fewshift train bohb`: an extractor by hyper-parameter search."""

from __future__ import annotations

from typing import Annotated

import typer

from fewshift.cli.train_options import (
    DeviceOption,
    DomainsOption,
    ExactOption,
    KitOption,
    OutOption,
    Precision,
    Preset,
    PresetOption,
    QuietOption,
    RecordsOption,
    ResumeOption,
    SaveOption,
    SeedOption,
    SuiteOption,
    ValidationOption,
)
from fewshift.cli.train_wanted import Wanted


def bohb(
    kit: KitOption,
    out: OutOption,
    records: RecordsOption = None,
    suite: SuiteOption = None,
    domains: DomainsOption = None,
    preset: PresetOption = Preset.paper,
    configurations: Annotated[
        int | None, typer.Option(min=1, help="How many are tried; the cost is a third of as many whole runs.")
    ] = None,
    updates: Annotated[
        int | None, typer.Option(min=9, help="Optimizer steps of a whole run, if not the preset's.")
    ] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Images of a domain an update.")] = None,
    precision: Annotated[
        Precision, typer.Option(help="bfloat16 is faster on recent GPUs.")
    ] = Precision.float32,
    seed: SeedOption = 0,
    device: DeviceOption = "auto",
    validation_tasks: ValidationOption = None,
    save_every: SaveOption = None,
    resume: ResumeOption = False,
    exact: ExactOption = False,
    quiet: QuietOption = False,
) -> None:
    """BOHB: search rate, decay and variation of images by nearest-centroid accuracy on VALID tasks.

    The best extractor, of the architecture of the kit's backbone, becomes a part of the kit.

    Example: `fewshift train bohb --kit runs/backbone.kit --suite open --preset quick --out runs/bohb.kit`
    """
    from fewshift.cli import train_bohb_work as stage

    changes = {
        "updates": updates,
        "precision": precision.value,
        "validation_tasks": validation_tasks,
        "seed": seed,
    }
    wanted = Wanted(
        kit=kit,
        out=out,
        records=records,
        suite=suite,
        domains=domains,
        preset=preset.value,
        device=device,
        save_every=save_every,
        resume=resume,
        exact=exact,
        quiet=quiet,
        changes=changes,
    )
    stage.run(wanted, configurations, batch)
