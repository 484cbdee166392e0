"""`fewshift train preconditioners` and `fewshift train classifier`: Algorithms 1 and 2 as commands."""

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
    GraphPrecisionOption,
    ImagesOption,
    InnerLastOption,
    InnerRateOption,
    InnerStepsOption,
    KitOption,
    MetaPreset,
    MetaPresetOption,
    OrderOption,
    OutOption,
    QuietOption,
    RateOption,
    RecordsOption,
    ResumeOption,
    SaveOption,
    SeedOption,
    SitesOption,
    StrangersOption,
    StreamOption,
    SuiteOption,
    TasksOption,
    UpdatesOption,
    ValidationOption,
    VaryOption,
)


def preconditioners(
    kit: KitOption,
    out: OutOption,
    records: RecordsOption = None,
    suite: SuiteOption = None,
    domains: DomainsOption = None,
    preset: MetaPresetOption = MetaPreset.paper,
    classes: ClassesOption = Classes.train,
    updates: UpdatesOption = None,
    tasks_per_update: TasksOption = None,
    rate: RateOption = None,
    order: OrderOption = None,
    inner_steps: InnerStepsOption = None,
    inner_rate: InnerRateOption = None,
    inner_last_rate: InnerLastOption = None,
    design: Annotated[
        str | None,
        typer.Option(help="gram, gram_only, cholesky, cholesky_identity, free, identity or low_rank."),
    ] = None,
    scale: Annotated[
        float | None, typer.Option(help="Roots start at this times the identity; 0.1 as published.")
    ] = None,
    rank: Annotated[int | None, typer.Option(min=1, help="Rows of a low_rank root.")] = None,
    normalise: Annotated[
        bool | None, typer.Option(help="Give each gradient length 1; short runs need it.")
    ] = None,
    train_starts: Annotated[
        bool | None, typer.Option(help="Learn each domain's starting values, too.")
    ] = None,
    common_start: Annotated[
        bool | None, typer.Option(help="Starting values are a shared one plus each domain's own.")
    ] = None,
    start_rate: Annotated[
        float | None, typer.Option(help="Learning rate of the starting values (Adam).")
    ] = None,
    weight_decay: Annotated[float | None, typer.Option(min=0, help="Weight decay of the roots.")] = None,
    start_rank: Annotated[
        int | None, typer.Option(min=1, help="Starting values of this rank; needs --sites last.")
    ] = None,
    sites: SitesOption = None,
    train_images: ImagesOption = None,
    policy: Annotated[
        bool, typer.Option("--policy", help="Under the kit's policy, for TSP††; TSP†'s stay in the kit.")
    ] = False,
    vary: VaryOption = None,
    strangers: StrangersOption = None,
    support_cap: CapOption = None,
    stream: StreamOption = None,
    seed: SeedOption = 0,
    device: DeviceOption = "auto",
    precision: GraphPrecisionOption = "tf32",
    validation_tasks: ValidationOption = None,
    save_every: SaveOption = None,
    resume: ResumeOption = False,
    exact: ExactOption = False,
    quiet: QuietOption = False,
) -> None:
    """Algorithm 1: meta-train a preconditioner for every domain and site of a kit's backbone.

    Example: `fewshift train preconditioners --kit runs/backbone.kit --suite open --out runs/dsp.kit`
    """
    from fewshift.cli import train_meta as stage

    wanted = stage.Wanted(
        kit=kit,
        out=out,
        records=records,
        suite=suite,
        domains=domains,
        preset=preset.value,
        classes=classes.value,
        support_cap=support_cap,
        stream=stream,
        sites=sites,
        train_images=train_images,
        device=device,
        precision=precision,
        save_every=save_every,
        resume=resume,
        exact=exact,
        quiet=quiet,
        vary=preset is MetaPreset.small if vary is None else vary,
        strangers=strangers or 0,
        inner={"order": order, "steps": inner_steps, "rate": inner_rate, "last_rate": inner_last_rate},
        changes={
            "updates": updates,
            "tasks_per_update": tasks_per_update,
            "rate": rate,
            "validation_tasks": validation_tasks,
            "design": design,
            "scale": scale,
            "rank": rank,
            "normalise": normalise,
            "train_starts": train_starts,
            "common_start": common_start,
            "start_rate": start_rate,
            "start_rank": start_rank,
            "weight_decay": weight_decay,
            "seed": seed,
        },
    )
    if policy:
        from fewshift.cli.train_under_policy import run_under_policy

        run_under_policy(wanted)
        return
    stage.run_preconditioners(wanted)


def classifier(
    kit: KitOption,
    out: OutOption,
    records: RecordsOption = None,
    suite: SuiteOption = None,
    preset: MetaPresetOption = MetaPreset.paper,
    classes: ClassesOption = Classes.train,
    updates: UpdatesOption = None,
    tasks_per_update: TasksOption = None,
    rate: RateOption = None,
    width: Annotated[int | None, typer.Option(min=1, help="Filters a layer; 256 as published.")] = None,
    auxiliary: Annotated[
        float | None, typer.Option(min=0, help="λ of Eq. 12; 0: cross-entropy only, without inner steps.")
    ] = None,
    cross_entropy: Annotated[
        bool | None, typer.Option(help="Use the domain labels; without: auxiliary loss only.")
    ] = None,
    order: OrderOption = None,
    inner_steps: InnerStepsOption = None,
    inner_rate: InnerRateOption = None,
    inner_last_rate: InnerLastOption = None,
    train_images: ImagesOption = None,
    support_cap: CapOption = None,
    stream: StreamOption = None,
    seed: SeedOption = 0,
    device: DeviceOption = "auto",
    precision: GraphPrecisionOption = "tf32",
    validation_tasks: ValidationOption = None,
    save_every: SaveOption = None,
    resume: ResumeOption = False,
    exact: ExactOption = False,
    quiet: QuietOption = False,
) -> None:
    """Algorithm 2: meta-train the dataset classifier that blends a kit's preconditioners.

    Example: `fewshift train classifier --kit runs/dsp.kit --suite open --preset quick --out runs/tsp.kit`
    """
    from fewshift.cli import train_meta as stage

    wanted = stage.Wanted(
        kit=kit,
        out=out,
        records=records,
        suite=suite,
        domains=None,
        preset=preset.value,
        classes=classes.value,
        train_images=train_images,
        support_cap=support_cap,
        stream=stream,
        device=device,
        precision=precision,
        save_every=save_every,
        resume=resume,
        exact=exact,
        quiet=quiet,
        inner={"order": order, "steps": inner_steps, "rate": inner_rate, "last_rate": inner_last_rate},
        changes={
            "updates": updates,
            "tasks_per_update": tasks_per_update,
            "rate": rate,
            "validation_tasks": validation_tasks,
            "width": width,
            "auxiliary": auxiliary,
            "cross_entropy": cross_entropy,
            "seed": seed,
        },
    )
    stage.run_classifier(wanted)
