"""`fewshift train`: an extractor, its preconditioners (Algorithm 1), the dataset classifier (Algorithm 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from fewshift.cli import train_algorithms, train_baselines
from fewshift.cli.option_groups import with_groups
from fewshift.cli.options import RecordsOption, SuiteOption
from fewshift.cli.train_curves import curves
from fewshift.cli.train_options import (
    DomainsOption,
    OutOption,
    Precision,
    Preset,
    RateOption,
    Run,
    UpdatesOption,
)
from fewshift.cli.train_rates import rates
from fewshift.cli.train_shrink import shrink

train = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="Train an extractor, its preconditioners, the dataset classifier. Trainings can be stopped with "
    "Ctrl-C or killed, go on with `--resume` to the same numbers, and run under `torchrun`; `rates` goes on "
    "by the same command.",
)


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What `train backbone` can be told."""

    out: OutOption
    records: RecordsOption = None
    suite: SuiteOption = None
    domains: DomainsOption = None
    preset: Annotated[
        Preset,
        typer.Option(
            help="paper: as published. quick: minutes on a CPU. small: minutes on a GPU, small data."
        ),
    ] = Preset.paper
    width: Annotated[int | None, typer.Option(min=1, help="Channels of the stem; 64 as published.")] = None
    image_size: Annotated[int | None, typer.Option(min=8, help="Pixels a side; 84 as published.")] = None
    updates: UpdatesOption = None
    batch: Annotated[int | None, typer.Option(min=1, help="Images of a domain an update.")] = None
    rate: RateOption = None
    teacher: Annotated[
        list[str] | None,
        typer.Option(help="DOMAIN=RUN: distil from that finished single-domain run (URL). Repeatable."),
    ] = None
    hold_out: Annotated[
        float, typer.Option(help="Leave this share of the TRAIN classes to the preconditioners.")
    ] = 0.0
    flip: Annotated[bool, typer.Option("--flip", help="Mirror images at random; not in the protocol.")] = (
        False
    )
    never_mirrored: Annotated[
        str | None, typer.Option(help="Domains that --flip leaves alone (letters, digits), with commas.")
    ] = None
    zoom: Annotated[
        float | None,
        typer.Option(min=0, max=0.9, help="Enlarge windows with sides of at least 1 less this."),
    ] = None
    precision: Annotated[
        Precision | None, typer.Option(help="bfloat16 is faster on recent GPUs. Default: the preset's.")
    ] = None
    stream: Annotated[
        bool | None,
        typer.Option(
            "--stream/--resident",
            help="Read images update by update, or hold them all. Default: hold what half the memory has "
            "room for.",
        ),
    ] = None


@train.command()
@with_groups
def backbone(*, wanted: Wanted, run: Run) -> None:
    """Train an extractor by classification: on one domain, on several, or on several with teachers (URL).

    The result is a kit with a frozen backbone, chosen by nearest-centroid accuracy on VALID tasks.

    Example: `fewshift train backbone --suite open --preset quick --out runs/backbone.kit`
    """
    from fewshift.cli.train_backbone import run_backbone

    run_backbone(wanted, run)


train.command()(train_algorithms.preconditioners)
train.command()(train_algorithms.classifier)
train.command()(train_algorithms.policy)
train.command()(rates)
train.command()(shrink)
train.command()(curves)
train.command()(train_baselines.extractors)
train.command()(train_baselines.selector)
train.command()(train_baselines.flute)
train.command()(train_baselines.cnaps)
train.command()(train_baselines.trim)
train.command()(train_baselines.maml)
train.command()(train_baselines.bohb)
