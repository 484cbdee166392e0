"""`fewshift train extractors` and `selector`: what SUR and URT choose from, and how URT chooses."""

from __future__ import annotations

from typing import Annotated

import typer

from fewshift.cli.train_options import (
    CapOption,
    DeviceOption,
    DomainsOption,
    ExactOption,
    KitOption,
    OutOption,
    Precision,
    Preset,
    PresetOption,
    QuietOption,
    RateOption,
    RecordsOption,
    ResumeOption,
    SaveOption,
    SeedOption,
    SuiteOption,
    TasksOption,
    UpdatesOption,
    ValidationOption,
)
from fewshift.cli.train_wanted import Wanted


def extractors(
    kit: KitOption,
    out: OutOption,
    records: RecordsOption = None,
    suite: SuiteOption = None,
    domains: DomainsOption = None,
    extractor: Annotated[
        list[str] | None,
        typer.Option(help="DOMAIN=KIT: take that kit's backbone instead of training one. Repeatable."),
    ] = None,
    half: Annotated[bool, typer.Option("--half", help="Keep weights in 16 bits: half the file.")] = False,
    preset: PresetOption = Preset.paper,
    updates: UpdatesOption = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Images an update.")] = None,
    rate: RateOption = None,
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
    """Train an extractor a domain, of the architecture of a kit's backbone, for SUR and URT.

    Images are varied as they were for the kit's backbone, and what was held out from that stays held out.

    Example: `fewshift train extractors --kit runs/backbone.kit --suite open --out runs/extractors.kit`
    """
    from fewshift.cli import train_extractors as stage

    changes = {
        "updates": updates,
        "default_batch": batch,
        "rate": rate,
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
    stage.run(wanted, extractor or [], half)


def selector(
    kit: KitOption,
    out: OutOption,
    records: RecordsOption = None,
    suite: SuiteOption = None,
    domains: DomainsOption = None,
    preset: PresetOption = Preset.paper,
    updates: UpdatesOption = None,
    tasks_per_update: TasksOption = None,
    rate: RateOption = None,
    hidden: Annotated[int | None, typer.Option(min=1, help="Length of keys; 1024 as published.")] = None,
    support_cap: CapOption = None,
    seed: SeedOption = 0,
    device: DeviceOption = "auto",
    validation_tasks: ValidationOption = None,
    save_every: SaveOption = None,
    resume: ResumeOption = False,
    exact: ExactOption = False,
    quiet: QuietOption = False,
) -> None:
    """URT: learn to attend to a kit's extractors, on features that are extracted once.

    Example: `fewshift train selector --kit runs/extractors.kit --suite open --out runs/urt.kit`
    """
    from fewshift.cli import train_parts as stage

    changes = {
        "updates": updates,
        "tasks_per_update": tasks_per_update,
        "rate": rate,
        "hidden": hidden,
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
        support_cap=support_cap,
    )
    stage.run_selector(wanted)
