"""`fewshift train flute`, `cnaps` and `trim`: what the methods learn that modulate a network."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from fewshift.cli.option_groups import with_groups
from fewshift.cli.train_options import (
    CapOption,
    DomainsOption,
    Learning,
    RateOption,
    Run,
    Source,
    TwoPresets,
    TwoPresetsOption,
    UpdatesOption,
)
from fewshift.cli.train_wanted import Wanted


class Start(str, Enum):
    """What FLUTE's template starts from."""

    fresh = "fresh"
    backbone = "backbone"


CodeOption = Annotated[int | None, typer.Option(min=1, help="Numbers in a set's code; 64 as published.")]


@with_groups
def flute(
    *,
    source: Source,
    domains: DomainsOption = None,
    preset: TwoPresetsOption = TwoPresets.paper,
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
    run: Run,
) -> None:
    """FLUTE: train a template with FiLM a domain, of the kit's architecture, then the blender of the FiLM.

    Example: `fewshift train flute --kit runs/backbone.kit --suite open --preset quick --out runs/flute.kit`
    """
    from fewshift.cli.train_parts import run_flute

    template = {
        "updates": updates,
        "sets_per_update": sets_per_update,
        "set_size": set_size,
        "rate": rate,
        "start": None if start is None else start.value,
        **run.changes,
    }
    blender = {
        "updates": blender_updates,
        "code": code,
        "seed": run.seed,
        "validation_sets": 0 if run.validation_tasks == 0 else None,
    }
    wanted = Wanted(source=source, domains=domains, preset=preset.value, run=run, changes=template)
    run_flute(wanted, blender)


@with_groups
def cnaps(
    *,
    source: Source,
    domains: DomainsOption = None,
    preset: TwoPresetsOption = TwoPresets.paper,
    learning: Learning,
    code: CodeOption = None,
    support_cap: CapOption = None,
    run: Run,
) -> None:
    """Simple CNAPS: meta-train the set encoder and FiLM generator for a kit's frozen backbone.

    Example: `fewshift train cnaps --kit runs/backbone.kit --suite open --preset quick --out runs/cnaps.kit`
    """
    from fewshift.cli.train_parts import run_modulator

    wanted = Wanted(
        source=source,
        domains=domains,
        preset=preset.value,
        support_cap=support_cap,
        run=run,
        changes={**learning.changes, "code": code, **run.changes},
    )
    run_modulator("cnaps", wanted)


@with_groups
def trim(
    *,
    source: Source,
    domains: DomainsOption = None,
    preset: TwoPresetsOption = TwoPresets.paper,
    learning: Learning,
    code: CodeOption = None,
    gate: Annotated[
        float | None, typer.Option(min=0, help="Weight of the gate's loss; 0.1 as published.")
    ] = None,
    support_cap: CapOption = None,
    run: Run,
) -> None:
    """tri-M: meta-train the gated FiLM generator for a kit's frozen backbone.

    Example: `fewshift train trim --kit runs/backbone.kit --suite open --preset quick --out runs/trim.kit`
    """
    from fewshift.cli.train_parts import run_modulator

    wanted = Wanted(
        source=source,
        domains=domains,
        preset=preset.value,
        support_cap=support_cap,
        run=run,
        changes={**learning.changes, "code": code, "gate": gate, **run.changes},
    )
    run_modulator("trim", wanted)
