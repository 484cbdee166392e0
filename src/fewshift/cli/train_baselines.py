"""`fewshift train extractors`, `selector`, `flute`, `cnaps`, `trim`, `maml`, `bohb`: parts of a kit."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from fewshift.cli.option_groups import with_groups
from fewshift.cli.train_options import (
    CapOption,
    InnerRateOption,
    InnerStepsOption,
    Learning,
    OrderOption,
    PartSource,
    Precision,
    RateOption,
    Run,
    UpdatesOption,
)

PrecisionOption = Annotated[Precision, typer.Option(help="bfloat16 is faster on recent GPUs.")]
CodeOption = Annotated[int | None, typer.Option(min=1, help="Numbers in a set's code; 64 as published.")]


@with_groups
def extractors(
    *,
    source: PartSource,
    extractor: Annotated[
        list[str] | None,
        typer.Option(help="DOMAIN=KIT: take that kit's backbone instead of training one. Repeatable."),
    ] = None,
    half: Annotated[bool, typer.Option("--half", help="Keep weights in 16 bits: half the file.")] = False,
    updates: UpdatesOption = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Images an update.")] = None,
    rate: RateOption = None,
    precision: PrecisionOption = Precision.float32,
    run: Run,
) -> None:
    """Train an extractor a domain, of the architecture of a kit's backbone, for SUR and URT.

    Images are varied as they were for the kit's backbone, and what was held out from that stays held out.

    Example: `fewshift train extractors --kit runs/backbone.kit --suite open --out runs/extractors.kit`
    """
    from fewshift.cli.train_extractors import run_extractors

    changes = {"updates": updates, "default_batch": batch, "rate": rate, "precision": precision.value}
    run_extractors(source, run, changes, extractor or [], half)


@with_groups
def selector(
    *,
    source: PartSource,
    learning: Learning,
    hidden: Annotated[int | None, typer.Option(min=1, help="Length of keys; 1024 as published.")] = None,
    support_cap: CapOption = None,
    run: Run,
) -> None:
    """URT: learn to attend to a kit's extractors, on features that are extracted once.

    Example: `fewshift train selector --kit runs/extractors.kit --suite open --out runs/urt.kit`
    """
    from fewshift.cli.train_parts import run_selector

    run_selector(source, run, {**learning.changes, "hidden": hidden}, support_cap)


class Start(str, Enum):
    """What FLUTE's template starts from."""

    fresh = "fresh"
    backbone = "backbone"


@with_groups
def flute(
    *,
    source: PartSource,
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
    }
    run_flute(source, run, template, {"updates": blender_updates, "code": code})


@with_groups
def cnaps(
    *,
    source: PartSource,
    learning: Learning,
    code: CodeOption = None,
    support_cap: CapOption = None,
    run: Run,
) -> None:
    """Simple CNAPS: meta-train the set encoder and FiLM generator for a kit's frozen backbone.

    Example: `fewshift train cnaps --kit runs/backbone.kit --suite open --preset quick --out runs/cnaps.kit`
    """
    from fewshift.cli.train_parts import run_modulator

    run_modulator("cnaps", source, run, {**learning.changes, "code": code}, support_cap)


@with_groups
def trim(
    *,
    source: PartSource,
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

    run_modulator("trim", source, run, {**learning.changes, "code": code, "gate": gate}, support_cap)


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
    source: PartSource,
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
    run_maml(rule.value, source, run, {**learning.changes, **own}, support_cap)


@with_groups
def bohb(
    *,
    source: PartSource,
    configurations: Annotated[
        int | None, typer.Option(min=1, help="How many are tried; the cost is a third of as many whole runs.")
    ] = None,
    updates: Annotated[
        int | None, typer.Option(min=9, help="Optimizer steps of a whole run, if not the preset's.")
    ] = None,
    batch: Annotated[int | None, typer.Option(min=1, help="Images of a domain an update.")] = None,
    precision: PrecisionOption = Precision.float32,
    run: Run,
) -> None:
    """BOHB: search rate, decay and variation of images by nearest-centroid accuracy on VALID tasks.

    The best extractor, of the architecture of the kit's backbone, becomes a part of the kit.

    Example: `fewshift train bohb --kit runs/backbone.kit --suite open --preset quick --out runs/bohb.kit`
    """
    from fewshift.cli.train_extractors import run_bohb

    changes = {"updates": updates, "precision": precision.value}
    run_bohb(source, run, changes, configurations, batch)
