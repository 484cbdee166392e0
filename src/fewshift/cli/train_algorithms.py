"""`fewshift train preconditioners` and `fewshift train classifier`: Algorithms 1 and 2 as commands."""

from __future__ import annotations

from typing import Annotated

import typer

from fewshift.cli.option_groups import with_groups
from fewshift.cli.train_options import (
    CapOption,
    Classes,
    ClassesOption,
    DomainsOption,
    ImagesOption,
    Inner,
    InnerPrecisionOption,
    Learning,
    MetaPreset,
    MetaPresetOption,
    Run,
    SitesOption,
    Source,
    StrangersOption,
    StreamOption,
    VaryOption,
)
from fewshift.cli.train_wanted import MetaWanted


@with_groups
def preconditioners(
    *,
    source: Source,
    domains: DomainsOption = None,
    preset: MetaPresetOption = MetaPreset.paper,
    classes: ClassesOption = Classes.train,
    learning: Learning,
    inner: Inner,
    design: Annotated[
        str | None,
        typer.Option(
            help="gram, gram_only, cholesky, cholesky_identity, free, identity, low_rank or bounded."
        ),
    ] = None,
    scale: Annotated[
        float | None, typer.Option(help="Roots start at this times the identity; 0.1 as published.")
    ] = None,
    rank: Annotated[int | None, typer.Option(min=1, help="Rows of a low_rank or bounded root.")] = None,
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
    precision: InnerPrecisionOption = "tf32",
    validate_every: Annotated[
        int | None, typer.Option(min=1, help="Updates between validations, if not the preset's.")
    ] = None,
    keep_last: Annotated[
        bool, typer.Option("--keep-last", help="Keep the last state, not the best validated one.")
    ] = False,
    run: Run,
) -> None:
    """Algorithm 1: meta-train a preconditioner for every domain and site of a kit's backbone.

    Example: `fewshift train preconditioners --kit runs/backbone.kit --suite open --out runs/dsp.kit`
    """
    from fewshift.presets.small_data import STRANGERS

    small = preset is MetaPreset.small
    wanted = MetaWanted(
        source=source,
        domains=domains,
        preset=preset.value,
        classes=classes.value,
        inner=inner.changes,
        sites=sites,
        train_images=train_images,
        vary=small if vary is None else vary,
        strangers=STRANGERS * small if strangers is None else strangers,
        needs_images=tuple(n for n, given in (("--vary", vary), ("--strangers", strangers)) if given),
        support_cap=support_cap,
        stream=stream,
        precision=precision,
        validate_every=validate_every,
        keep_last=keep_last,
        run=run,
        changes={
            **learning.changes,
            "design": design,
            "scale": scale,
            "rank": rank,
            "normalise": normalise,
            "train_starts": train_starts,
            "common_start": common_start,
            "start_rate": start_rate,
            "start_rank": start_rank,
            "weight_decay": weight_decay,
            **run.changes,
        },
    )
    if policy:
        from fewshift.cli.train_under_policy import run_under_policy

        run_under_policy(wanted)
        return
    from fewshift.cli.train_meta import run_preconditioners

    run_preconditioners(wanted)


@with_groups
def classifier(
    *,
    source: Source,
    preset: MetaPresetOption = MetaPreset.paper,
    classes: ClassesOption = Classes.train,
    learning: Learning,
    width: Annotated[int | None, typer.Option(min=1, help="Filters a layer; 256 as published.")] = None,
    auxiliary: Annotated[
        float | None, typer.Option(min=0, help="λ of Eq. 12; 0: cross-entropy only, without inner steps.")
    ] = None,
    cross_entropy: Annotated[
        bool | None, typer.Option(help="Use the domain labels; without: auxiliary loss only.")
    ] = None,
    inner: Inner,
    train_images: ImagesOption = None,
    support_cap: CapOption = None,
    stream: StreamOption = None,
    precision: InnerPrecisionOption = "tf32",
    run: Run,
) -> None:
    """Algorithm 2: meta-train the dataset classifier that blends a kit's preconditioners.

    Example: `fewshift train classifier --kit runs/dsp.kit --suite open --preset quick --out runs/tsp.kit`
    """
    from fewshift.cli.train_meta import run_classifier

    own = {"width": width, "auxiliary": auxiliary, "cross_entropy": cross_entropy}
    run_classifier(
        MetaWanted(
            source=source,
            preset=preset.value,
            classes=classes.value,
            inner=inner.changes,
            train_images=train_images,
            support_cap=support_cap,
            stream=stream,
            precision=precision,
            run=run,
            changes={**learning.changes, **own, **run.changes},
        )
    )
