"""`fewshift train preconditioners`, `classifier` and `policy`: Algorithms 1 and 2, and TA²-Net's policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from fewshift.cli.option_groups import with_groups
from fewshift.cli.train_options import (
    CapOption,
    Classes,
    ClassesOption,
    DomainsOption,
    Inner,
    Learning,
    MetaPreset,
    MetaPresetOption,
    PartSource,
    PresetChanges,
    Run,
    Source,
    Tasks,
)


@dataclass(frozen=True, kw_only=True)
class Design(PresetChanges):
    """What is learned besides, or in place of, the published roots."""

    design: Annotated[
        str | None,
        typer.Option(
            help="gram, gram_only, cholesky, cholesky_identity, free, identity, low_rank or bounded."
        ),
    ] = None
    scale: Annotated[
        float | None, typer.Option(help="Roots start at this times the identity; 0.1 as published.")
    ] = None
    rank: Annotated[int | None, typer.Option(min=1, help="Rows of a low_rank or bounded root.")] = None
    normalise: Annotated[
        bool | None, typer.Option(help="Give each gradient length 1; short runs need it.")
    ] = None
    train_starts: Annotated[bool | None, typer.Option(help="Learn each domain's starting values, too.")] = (
        None
    )
    common_start: Annotated[
        bool | None, typer.Option(help="Starting values are a shared one plus each domain's own.")
    ] = None
    start_rate: Annotated[float | None, typer.Option(help="Learning rate of the starting values (Adam).")] = (
        None
    )
    weight_decay: Annotated[float | None, typer.Option(min=0, help="Weight decay of the roots.")] = None
    start_rank: Annotated[
        int | None, typer.Option(min=1, help="Starting values of this rank; needs --sites last.")
    ] = None


@with_groups
def preconditioners(
    *,
    source: Source,
    domains: DomainsOption = None,
    preset: MetaPresetOption = MetaPreset.paper,
    classes: ClassesOption = Classes.train,
    learning: Learning,
    inner: Inner,
    design: Design,
    sites: Annotated[
        str | None,
        typer.Option(help="last, pointwise or layers with commas, if not the kit's; with last, features do."),
    ] = None,
    policy: Annotated[
        bool, typer.Option("--policy", help="Under the kit's policy, for TSP††; TSP†'s stay in the kit.")
    ] = False,
    vary: Annotated[
        bool | None,
        typer.Option("--vary/--no-vary", help="Vary the images of training tasks. Default: with small only."),
    ] = None,
    strangers: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Made-up domains to learn from, too: tasks in random styles. Default: 4 with small, else 0.",
        ),
    ] = None,
    tasks: Tasks,
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
    from fewshift.cli.train_meta import MetaWanted, run_preconditioners
    from fewshift.presets.small_data import STRANGERS

    small = preset is MetaPreset.small
    wanted = MetaWanted(
        source=source,
        domains=domains,
        preset=preset.value,
        classes=classes.value,
        changes={**learning.changes, **design.changes},
        inner=inner.changes,
        sites=sites,
        vary=small if vary is None else vary,
        strangers=STRANGERS * small if strangers is None else strangers,
        needs_images=tuple(n for n, given in (("--vary", vary), ("--strangers", strangers)) if given),
        tasks=tasks,
        validate_every=validate_every,
        keep_last=keep_last,
        run=run,
    )
    if policy:
        from fewshift.cli.train_under_policy import run_under_policy

        run_under_policy(wanted)
    else:
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
    tasks: Tasks,
    run: Run,
) -> None:
    """Algorithm 2: meta-train the dataset classifier that blends a kit's preconditioners.

    Example: `fewshift train classifier --kit runs/dsp.kit --suite open --preset quick --out runs/tsp.kit`
    """
    from fewshift.cli.train_meta import MetaWanted, run_classifier

    own = {"width": width, "auxiliary": auxiliary, "cross_entropy": cross_entropy}
    run_classifier(
        MetaWanted(
            source=source,
            preset=preset.value,
            classes=classes.value,
            changes={**learning.changes, **own},
            inner=inner.changes,
            tasks=tasks,
            run=run,
        )
    )


@with_groups
def policy(
    *,
    source: PartSource,
    classes: ClassesOption = Classes.train,
    learning: Learning,
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
    run: Run,
) -> None:
    """TA²-Net: learn by trial how many adapters each convolution should get for a task.

    Example: `fewshift train policy --kit runs/tsp.kit --suite open --preset quick --out runs/ta2.kit`
    """
    from fewshift.cli.train_meta import MetaWanted
    from fewshift.cli.train_under_policy import run_policy

    own = {"temperature": temperature, "trial_steps": trial_steps, "trial_rate": trial_rate}
    run_policy(
        MetaWanted(
            source=source,
            domains=source.domains,
            preset=source.preset.value,
            classes=classes.value,
            changes={**learning.changes, **own},
            tasks=Tasks(support_cap=support_cap),
            run=run,
        )
    )
