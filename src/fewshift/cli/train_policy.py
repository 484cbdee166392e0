"""`fewshift train policy`: how many adapters a convolution should get, learned for TA²-Net and TSP††."""

from __future__ import annotations

from typing import Annotated

import typer

from fewshift.cli.train_options import (
    CapOption,
    Classes,
    ClassesOption,
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


def policy(
    kit: KitOption,
    out: OutOption,
    records: RecordsOption = None,
    suite: SuiteOption = None,
    domains: DomainsOption = None,
    preset: PresetOption = Preset.paper,
    classes: ClassesOption = Classes.train,
    updates: UpdatesOption = None,
    tasks_per_update: TasksOption = None,
    rate: RateOption = None,
    temperature: Annotated[
        float | None, typer.Option(help="Divides the logits of a choice; 10 as released.")
    ] = None,
    trial_steps: Annotated[
        int | None, typer.Option(min=1, help="Steps of each of a task's two trials.")
    ] = None,
    trial_rate: Annotated[
        float | None, typer.Option(help="Step size in the trials; 0.5 as released.")
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
    """TA²-Net: learn by trial how many adapters each convolution should get for a task.

    Example: `fewshift train policy --kit runs/tsp.kit --suite open --preset quick --out runs/ta2.kit`
    """
    from fewshift.cli.train_meta import Wanted
    from fewshift.cli.train_under_policy import run_policy

    wanted = Wanted(
        kit=kit,
        out=out,
        records=records,
        suite=suite,
        domains=domains,
        preset=preset.value,
        classes=classes.value,
        support_cap=support_cap,
        device=device,
        save_every=save_every,
        resume=resume,
        exact=exact,
        quiet=quiet,
        inner={},
        changes={
            "updates": updates,
            "tasks_per_update": tasks_per_update,
            "rate": rate,
            "temperature": temperature,
            "trial_steps": trial_steps,
            "trial_rate": trial_rate,
            "validation_tasks": validation_tasks,
            "seed": seed,
        },
    )
    run_policy(wanted)
