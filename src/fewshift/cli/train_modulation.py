"""`fewshift train flute`, `cnaps` and `trim`: what the methods learn that modulate a network."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from fewshift.cli.train_options import (
    CapOption,
    DeviceOption,
    DomainsOption,
    ExactOption,
    KitOption,
    OutOption,
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


class Start(str, Enum):
    """What FLUTE's template starts from."""

    fresh = "fresh"
    backbone = "backbone"


CodeOption = Annotated[int | None, typer.Option(min=1, help="Numbers in a set's code; 64 as published.")]


def flute(
    kit: KitOption,
    out: OutOption,
    records: RecordsOption = None,
    suite: SuiteOption = None,
    domains: DomainsOption = None,
    preset: PresetOption = Preset.paper,
    start: Annotated[
        Start | None,
        typer.Option(help="fresh: as published. backbone: go on from the kit's. Default: the preset's."),
    ] = None,
    updates: UpdatesOption = None,
    sets_per_update: Annotated[int | None, typer.Option(min=1, help="8 as published.")] = None,
    set_size: Annotated[int | None, typer.Option(min=2, help="Images a set; 16 as published.")] = None,
    rate: RateOption = None,
    blender_updates: Annotated[
        int | None, typer.Option(min=1, help="Optimizer steps of the blender, if not the preset's.")
    ] = None,
    code: CodeOption = None,
    seed: SeedOption = 0,
    device: DeviceOption = "auto",
    validation_tasks: ValidationOption = None,
    save_every: SaveOption = None,
    resume: ResumeOption = False,
    exact: ExactOption = False,
    quiet: QuietOption = False,
) -> None:
    """FLUTE: train a template with FiLM a domain, of the kit's architecture, then the blender of the FiLM.

    Example: `fewshift train flute --kit runs/backbone.kit --suite open --preset quick --out runs/flute.kit`
    """
    from fewshift.cli import train_parts as stage

    changes = {
        "updates": updates,
        "sets_per_update": sets_per_update,
        "set_size": set_size,
        "rate": rate,
        "start": None if start is None else start.value,
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
    blender = {
        "updates": blender_updates,
        "code": code,
        "seed": seed,
        "validation_sets": 0 if validation_tasks == 0 else None,
    }
    stage.run_flute(wanted, blender)


def cnaps(
    kit: KitOption,
    out: OutOption,
    records: RecordsOption = None,
    suite: SuiteOption = None,
    domains: DomainsOption = None,
    preset: PresetOption = Preset.paper,
    updates: UpdatesOption = None,
    tasks_per_update: TasksOption = None,
    rate: RateOption = None,
    code: CodeOption = None,
    support_cap: CapOption = None,
    seed: SeedOption = 0,
    device: DeviceOption = "auto",
    validation_tasks: ValidationOption = None,
    save_every: SaveOption = None,
    resume: ResumeOption = False,
    exact: ExactOption = False,
    quiet: QuietOption = False,
) -> None:
    """Simple CNAPS: meta-train the set encoder and FiLM generator for a kit's frozen backbone.

    Example: `fewshift train cnaps --kit runs/backbone.kit --suite open --preset quick --out runs/cnaps.kit`
    """
    from fewshift.cli import train_parts as stage

    changes = {
        "updates": updates,
        "tasks_per_update": tasks_per_update,
        "rate": rate,
        "code": code,
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
    stage.run_modulator("cnaps", wanted)


def trim(
    kit: KitOption,
    out: OutOption,
    records: RecordsOption = None,
    suite: SuiteOption = None,
    domains: DomainsOption = None,
    preset: PresetOption = Preset.paper,
    updates: UpdatesOption = None,
    tasks_per_update: TasksOption = None,
    rate: RateOption = None,
    code: CodeOption = None,
    gate: Annotated[
        float | None, typer.Option(min=0, help="Weight of the gate's loss; 0.1 as published.")
    ] = None,
    support_cap: CapOption = None,
    seed: SeedOption = 0,
    device: DeviceOption = "auto",
    validation_tasks: ValidationOption = None,
    save_every: SaveOption = None,
    resume: ResumeOption = False,
    exact: ExactOption = False,
    quiet: QuietOption = False,
) -> None:
    """tri-M: meta-train the gated FiLM generator for a kit's frozen backbone.

    Example: `fewshift train trim --kit runs/backbone.kit --suite open --preset quick --out runs/trim.kit`
    """
    from fewshift.cli import train_parts as stage

    changes = {
        "updates": updates,
        "tasks_per_update": tasks_per_update,
        "rate": rate,
        "code": code,
        "gate": gate,
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
    stage.run_modulator("trim", wanted)
