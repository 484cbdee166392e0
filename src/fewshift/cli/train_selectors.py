"""`fewshift train extractors` and `selector`: what SUR and URT choose from, and how URT chooses."""

from __future__ import annotations

from typing import Annotated

import typer

from fewshift.cli.option_groups import with_groups
from fewshift.cli.train_options import (
    CapOption,
    DomainsOption,
    Learning,
    Precision,
    RateOption,
    Run,
    Source,
    TwoPresets,
    TwoPresetsOption,
    UpdatesOption,
)
from fewshift.cli.train_wanted import Wanted


@with_groups
def extractors(
    *,
    source: Source,
    domains: DomainsOption = None,
    extractor: Annotated[
        list[str] | None,
        typer.Option(help="DOMAIN=KIT: take that kit's backbone instead of training one. Repeatable."),
    ] = None,
    half: Annotated[bool, typer.Option("--half", help="Keep weights in 16 bits: half the file.")] = False,
    preset: TwoPresetsOption = TwoPresets.paper,
    updates: UpdatesOption = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Images an update.")] = None,
    rate: RateOption = None,
    precision: Annotated[
        Precision, typer.Option(help="bfloat16 is faster on recent GPUs.")
    ] = Precision.float32,
    run: Run,
) -> None:
    """Train an extractor a domain, of the architecture of a kit's backbone, for SUR and URT.

    Images are varied as they were for the kit's backbone, and what was held out from that stays held out.

    Example: `fewshift train extractors --kit runs/backbone.kit --suite open --out runs/extractors.kit`
    """
    from fewshift.cli.train_extractors import run_extractors

    own = {"updates": updates, "default_batch": batch, "rate": rate, "precision": precision.value}
    changes = {**own, **run.changes}
    wanted = Wanted(source=source, domains=domains, preset=preset.value, run=run, changes=changes)
    run_extractors(wanted, extractor or [], half)


@with_groups
def selector(
    *,
    source: Source,
    domains: DomainsOption = None,
    preset: TwoPresetsOption = TwoPresets.paper,
    learning: Learning,
    hidden: Annotated[int | None, typer.Option(min=1, help="Length of keys; 1024 as published.")] = None,
    support_cap: CapOption = None,
    run: Run,
) -> None:
    """URT: learn to attend to a kit's extractors, on features that are extracted once.

    Example: `fewshift train selector --kit runs/extractors.kit --suite open --out runs/urt.kit`
    """
    from fewshift.cli.train_parts import run_selector

    run_selector(
        Wanted(
            source=source,
            domains=domains,
            preset=preset.value,
            support_cap=support_cap,
            run=run,
            changes={**learning.changes, "hidden": hidden, **run.changes},
        )
    )
