"""`fewshift train bohb`: an extractor by hyper-parameter search."""

from __future__ import annotations

from typing import Annotated

import typer

from fewshift.cli.option_groups import with_groups
from fewshift.cli.train_options import DomainsOption, Precision, Run, Source, TwoPresets, TwoPresetsOption
from fewshift.cli.train_wanted import Wanted


@with_groups
def bohb(
    *,
    source: Source,
    domains: DomainsOption = None,
    preset: TwoPresetsOption = TwoPresets.paper,
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
    run: Run,
) -> None:
    """BOHB: search rate, decay and variation of images by nearest-centroid accuracy on VALID tasks.

    The best extractor, of the architecture of the kit's backbone, becomes a part of the kit.

    Example: `fewshift train bohb --kit runs/backbone.kit --suite open --preset quick --out runs/bohb.kit`
    """
    from fewshift.cli.train_extractors import run_bohb

    changes = {"updates": updates, "precision": precision.value, **run.changes}
    wanted = Wanted(source=source, domains=domains, preset=preset.value, run=run, changes=changes)
    run_bohb(wanted, configurations, batch)
