"""`fewshift train`: an extractor, its preconditioners (Algorithm 1), the dataset classifier (Algorithm 2)."""

from __future__ import annotations

from typing import Annotated

import typer

from fewshift.cli.option_groups import with_groups
from fewshift.cli.train_algorithms import classifier, preconditioners
from fewshift.cli.train_bohb import bohb
from fewshift.cli.train_curves import curves
from fewshift.cli.train_maml import maml
from fewshift.cli.train_modulation import cnaps, flute, trim
from fewshift.cli.train_options import (
    DomainsOption,
    OutOption,
    Precision,
    Preset,
    PresetOption,
    RateOption,
    RecordsOption,
    Run,
    SuiteOption,
    UpdatesOption,
)
from fewshift.cli.train_policy import policy as policy_command
from fewshift.cli.train_rates import rates
from fewshift.cli.train_selectors import extractors, selector
from fewshift.cli.train_shrink import shrink

train = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Train an extractor, its preconditioners, the dataset classifier. Trainings can be stopped with "
    "Ctrl-C or killed, go on with `--resume` to the same numbers, and run under `torchrun`; `rates` goes on "
    "by the same command.",
)


@train.command()
@with_groups
def backbone(
    *,
    out: OutOption,
    records: RecordsOption = None,
    suite: SuiteOption = None,
    domains: DomainsOption = None,
    preset: PresetOption = Preset.paper,
    width: Annotated[int | None, typer.Option(min=1, help="Channels of the stem; 64 as published.")] = None,
    image_size: Annotated[int | None, typer.Option(min=8, help="Pixels a side; 84 as published.")] = None,
    updates: UpdatesOption = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Images of a domain an update.")] = None,
    rate: RateOption = None,
    teacher: Annotated[
        list[str] | None,
        typer.Option(help="DOMAIN=RUN: distil from that finished single-domain run (URL). Repeatable."),
    ] = None,
    hold_out: Annotated[
        float, typer.Option(help="Leave this share of the TRAIN classes to the preconditioners.")
    ] = 0.0,
    flip: Annotated[
        bool, typer.Option("--flip", help="Mirror images at random; not in the protocol.")
    ] = False,
    never_mirrored: Annotated[
        str | None, typer.Option(help="Domains that --flip leaves alone (letters, digits), with commas.")
    ] = None,
    zoom: Annotated[
        float | None,
        typer.Option(min=0, max=0.9, help="Enlarge windows with sides of at least 1 less this."),
    ] = None,
    precision: Annotated[
        Precision | None, typer.Option(help="bfloat16 is faster on recent GPUs. Default: the preset's.")
    ] = None,
    stream: Annotated[
        bool | None,
        typer.Option(
            "--stream/--resident",
            help="Read images update by update, or hold them all. Default: hold what half the memory has "
            "room for.",
        ),
    ] = None,
    run: Run,
) -> None:
    """Train an extractor by classification: on one domain, on several, or on several with teachers (URL).

    The result is a kit with a frozen backbone, chosen by nearest-centroid accuracy on VALID tasks.

    Example: `fewshift train backbone --suite open --preset quick --out runs/backbone.kit`
    """
    from fewshift.cli import train_backbone as stage

    stage.run(
        stage.Wanted(
            out=out,
            records=records,
            suite=suite,
            domains=domains,
            preset=preset.value,
            width=width,
            image_size=image_size,
            updates=updates,
            batch=batch,
            rate=rate,
            teachers=teacher or [],
            hold_out=hold_out,
            flip=flip,
            never_mirrored=never_mirrored,
            zoom=zoom,
            precision=None if precision is None else precision.value,
            stream=stream,
            run=run,
        )
    )


train.command()(preconditioners)
train.command()(classifier)
train.command("policy")(policy_command)
train.command()(rates)
train.command()(shrink)
train.command()(curves)
train.command()(extractors)
train.command()(selector)
train.command()(flute)
train.command()(cnaps)
train.command()(trim)
train.command()(maml)
train.command()(bohb)
