"""`fewshift train policy`: how many adapters a convolution should get, learned for TA²-Net and TSP††."""

from __future__ import annotations

from typing import Annotated

import typer

from fewshift.cli.option_groups import with_groups
from fewshift.cli.train_options import (
    CapOption,
    Classes,
    ClassesOption,
    DomainsOption,
    Learning,
    Run,
    Source,
    TwoPresets,
    TwoPresetsOption,
)
from fewshift.cli.train_wanted import MetaWanted


@with_groups
def policy(
    *,
    source: Source,
    domains: DomainsOption = None,
    preset: TwoPresetsOption = TwoPresets.paper,
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
    from fewshift.cli.train_under_policy import run_policy

    own = {"temperature": temperature, "trial_steps": trial_steps, "trial_rate": trial_rate}
    run_policy(
        MetaWanted(
            source=source,
            domains=domains,
            preset=preset.value,
            classes=classes.value,
            support_cap=support_cap,
            run=run,
            changes={**learning.changes, **own, **run.changes},
        )
    )
