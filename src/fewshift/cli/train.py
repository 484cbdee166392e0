"""`fewshift train`: an extractor, its preconditioners (Algorithm 1), the dataset classifier (Algorithm 2)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from fewshift.cli import train_algorithms, train_baselines
from fewshift.cli.option_groups import with_groups
from fewshift.cli.options import RecordsOption, SuiteOption
from fewshift.cli.train_options import (
    DomainsOption,
    KitOption,
    OutOption,
    Precision,
    Preset,
    RateOption,
    Run,
    UpdatesOption,
)
from fewshift.cli.train_rates import rates

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
        float | None, typer.Option(min=0, max=0.9, help="Enlarge windows with sides of at least 1 less this.")
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


@train.command()
def shrink(
    kit: KitOption,
    out: Annotated[Path, typer.Option(help="The kit to write.")],
    start_rank: Annotated[
        int | None, typer.Option(min=1, help="Keep so many directions of each domain's own starting values.")
    ] = None,
    half: Annotated[bool, typer.Option(help="Keep weights, roots and starting values in 16 bits.")] = True,
) -> None:
    """Write a kit in 16 bits, with starting values cut to a low rank: a third of the size, to ship it.

    Do it before train rates: rounded weights are another backbone, if only by a little. What other methods
    have in the kit stays as it is.

    Example: `fewshift train shrink --kit tsp.kit --start-rank 48 --out small.kit`
    """
    from dataclasses import replace

    import torch

    from fewshift.core.starts import DomainStarts, shortened
    from fewshift.errors import FewshiftError
    from fewshift.nets.bundled import find_kit
    from fewshift.nets.kit import save_kit

    _, loaded = find_kit(kit, "cpu")
    if start_rank is not None:
        if not isinstance(loaded.starts, DomainStarts):
            raise FewshiftError(f"--start-rank: {kit} has no starting values of full rank: leave it out")
        base = {**loaded.backbone.init(), **(loaded.starts.base or {})}
        loaded = replace(loaded, starts=shortened(loaded.starts, base, start_rank))
    kept = torch.float16 if half else None
    save_kit(loaded, out, weights_dtype=kept, roots_dtype=kept, starts_dtype=kept)
    typer.echo(f"wrote {out}: {out.stat().st_size / 1e6:.1f} MB", err=True)


@train.command()
def curves(
    runs: Annotated[list[Path], typer.Argument(help="Folders of training runs (NAME.run), also unfinished.")],
    out: Annotated[
        Path | None, typer.Option(help="A picture to write: curves.png, .svg or .pdf. Default: curves.png.")
    ] = None,
    tensorboard: Annotated[
        Path | None, typer.Option(help="Write TensorBoard's files into this folder instead.")
    ] = None,
) -> None:
    """Draw the learning curves of one run or several, from the logs that runs keep.

    Example: `fewshift train curves runs/dsp.run runs/other.run --out curves.png`
    """
    from fewshift.training.curves import curves_of, draw, to_tensorboard

    found = {
        run.stem if run.stem not in {r.stem for r in runs if r != run} else str(run): run for run in runs
    }
    read = {name: curves_of(run) for name, run in found.items()}
    if tensorboard is not None:
        to_tensorboard(read, tensorboard)
        typer.echo(f"wrote {tensorboard}: tensorboard --logdir {tensorboard}", err=True)
    if out is not None or tensorboard is None:
        picture = out or Path("curves.png")
        draw(read, picture)
        typer.echo(f"wrote {picture}", err=True)


train.command()(train_baselines.extractors)
train.command()(train_baselines.selector)
train.command()(train_baselines.flute)
train.command()(train_baselines.cnaps)
train.command()(train_baselines.trim)
train.command()(train_baselines.maml)
train.command()(train_baselines.bohb)
