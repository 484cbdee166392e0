"""`fewshift train maml`: Proto-MAML and the rules on top of it."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from fewshift.cli.option_groups import with_groups
from fewshift.cli.train_options import (
    CapOption,
    DomainsOption,
    InnerRateOption,
    InnerStepsOption,
    Learning,
    OrderOption,
    Run,
    Source,
    TwoPresets,
    TwoPresetsOption,
)
from fewshift.cli.train_wanted import Wanted


class RuleName(str, Enum):
    """How a task's steps are taken; each is a method of its own."""

    sgd = "sgd"
    alfa = "alfa"
    gap = "gap"
    gap_approximate = "gap-approximate"
    meta_sgd = "meta-sgd"
    meta_curvature = "meta-curvature"


class NormName(str, Enum):
    """Where batch norms take their moments from."""

    support = "support"
    running = "running"


@with_groups
def maml(
    *,
    rule: Annotated[
        RuleName,
        typer.Option(
            help="sgd: Proto-MAML. gap serves the methods gap and gap_eigen; others one of their own."
        ),
    ] = RuleName.sgd,
    source: Source,
    domains: DomainsOption = None,
    preset: TwoPresetsOption = TwoPresets.paper,
    learning: Learning,
    rule_rate: Annotated[
        float | None, typer.Option(help="Step size of what the rule learns, if not the preset's.")
    ] = None,
    inner_rate: InnerRateOption = None,
    inner_steps: InnerStepsOption = None,
    test_steps: Annotated[int | None, typer.Option(min=0, help="Inner steps at test.")] = None,
    order: OrderOption = None,
    norm: Annotated[
        NormName | None,
        typer.Option(help="Norms by the support set's moments, as published, or by running averages."),
    ] = None,
    support_cap: CapOption = None,
    run: Run,
) -> None:
    """Proto-MAML: meta-train a copy of a kit's weights, and a rule, for a few steps on every kernel.

    The kit keeps its backbone and gains a part a rule: train several into one kit, one after the other.

    Example: `fewshift train maml --rule gap --kit runs/backbone.kit --suite open --out runs/gap.kit`
    """
    from fewshift.cli.train_parts import run_maml

    own = {
        "rule_rate": rule_rate,
        "inner_rate": inner_rate,
        "steps": inner_steps,
        "test_steps": test_steps,
        "order": order,
        "norm": None if norm is None else norm.value,
    }
    wanted = Wanted(
        source=source,
        domains=domains,
        preset=preset.value,
        support_cap=support_cap,
        run=run,
        changes={**learning.changes, **own, **run.changes},
    )
    run_maml(rule.value, wanted)
