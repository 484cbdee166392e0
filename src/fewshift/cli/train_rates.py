"""`fewshift train rates`: test rates from validation tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fewshift.cli.options import (
    DeviceOption,
    EngineOption,
    PrecisionOption,
    ProtocolOption,
    QuietOption,
    RecordsOption,
    SuiteOption,
    TaskSeedOption,
    words,
)
from fewshift.cli.train_options import CapOption


def rates(
    kit: Annotated[str, typer.Option(help="The kit to choose rates for.")],
    out: Annotated[Path, typer.Option(help="The kit to write; it may be the same file.")],
    records: RecordsOption = None,
    suite: SuiteOption = None,
    methods: Annotated[
        str,
        typer.Option(
            help="Of pa, tsa, ta2, gd, tsp, start, tsp_start, tsp_ta2, white and start_white, with commas."
        ),
    ] = "gd,tsp",
    tasks: Annotated[int, typer.Option(help="Validation tasks a domain.", min=1)] = 10,
    begin_at: Annotated[
        str | None, typer.Option(help="A kit whose rates the search begins at, where this one has none.")
    ] = None,
    protocol: ProtocolOption = "varying",
    seed: TaskSeedOption = 0,
    support_cap: CapOption = None,
    engine: EngineOption = "auto",
    precision: PrecisionOption = "auto",
    device: DeviceOption = "auto",
    quiet: QuietOption = False,
) -> None:
    """Choose a method's test rates on VALID classes of seen domains and on valid_unseen domains.

    The search goes uphill from the rates the kit has, those of --begin-at, or the published ones; where a
    method has them also over how much of the learned starting values, of P, and of the whitening a task
    takes. No test class and no unseen domain is looked at. The pairs go into the kit, with all that were
    tried; the methods gd_tuned and tsp_tuned read them, and --no-oracle its certainty threshold.
    Interrupted, the same command goes on: until the kit is written, what was tried lies beside it in
    NAME.rates.jsonl.

    Example: `fewshift train rates --kit tsp.kit --records DIR --methods gd,tsp --out tsp.kit`
    """
    from dataclasses import asdict
    from functools import cache, partial

    from fewshift.benchmarks.kit_score import without_stale_score
    from fewshift.cli import evaluate_inputs as inputs
    from fewshift.cli.console import bars, interrupted
    from fewshift.cli.outputs import keep_input, make_place
    from fewshift.cli.train_shared import capped
    from fewshift.data.domain import Domain, Role
    from fewshift.data.episodes import load_episode
    from fewshift.data.plan import TaskPlan, plans
    from fewshift.evaluation.evaluate import on_device
    from fewshift.evaluation.fingerprint import kit_fingerprint
    from fewshift.evaluation.pixel_rule import pixel_rule
    from fewshift.evaluation.run import with_roles
    from fewshift.nets.bundled import find_kit, kit_path
    from fewshift.nets.choice import choose_engine, chosen_precision, why_not_in
    from fewshift.nets.feature_kit import moves_only_the_last_map, on_features
    from fewshift.nets.kit import save_kit, write_info
    from fewshift.presets.kept_points import KeptPoints
    from fewshift.presets.rates import LazyEpisode, begun_at, choose_rates
    from fewshift.training.features import FeatureReader
    from fewshift.types import Episode, Split

    make_place(out, "--out", "tsp.kit")
    if begin_at is not None and kit_path(begin_at) != kit_path(kit):
        keep_input(out, "--out", kit_path(begin_at), "kit of --begin-at", "tsp.kit")
    where, track = inputs.choose_device(device), bars(quiet)
    _, loaded = find_kit(kit, where)
    rule, chosen_protocol = pixel_rule(loaded), capped(inputs.protocol_named(protocol), support_cap)
    looked_at: dict[Role, Split] = {"seen": "valid", "valid_unseen": "test"}
    there = with_roles(inputs.open_domains(records, None, suite, [], None, track), loaded.trained_on)
    found = [d for d in there if d.role in looked_at and len(d.spec.splits[looked_at[d.role]])]

    once = moves_only_the_last_map(loaded)  # then features are computed once per image
    used = on_features(loaded) if once else loaded
    features = FeatureReader({domain.name: domain for domain in found}, rule, loaded.backbone, track=track)

    def read(domain: Domain, plan: TaskPlan) -> Episode:
        return features(plan) if once else on_device(load_episode(domain, plan, rule), where)

    def of(role: Role) -> list[LazyEpisode]:
        lazy: list[LazyEpisode] = [
            partial(read, domain, plan)
            for domain in found
            if domain.role == role
            for plan in plans(domain.spec, looked_at[role], chosen_protocol, seed, range(tasks))
        ]
        # Every point asks for the same tasks: a GPU has the room to hold them, 40 MB each at most.
        return [cache(task) for task in lazy] if where.type == "cuda" else lazy

    seen, unseen = of("seen"), of("valid_unseen")
    begun = used if begin_at is None else begun_at(find_kit(begin_at, "cpu")[1], used)
    runner = choose_engine(used.backbone, engine, precision)
    if why_not := why_not_in(precision, runner):  # said, not refused: one list of commands serves any machine
        typer.echo(f"fewshift: {why_not}", err=True)
    search = {
        "kit": kit_fingerprint(loaded),
        "tasks": [tasks, seed, asdict(chosen_protocol)],
        "domains": [[domain.name, domain.role, domain.spec.fingerprint()] for domain in found],
        "computed": [where.type, runner.name, chosen_precision(runner)],
    }
    known = KeptPoints(out.with_suffix(".rates.jsonl"), search)
    if known:
        typer.echo(f"{len(known)} points were tried before: going on from {known.path}", err=True)
    try:
        chosen = choose_rates(begun, runner, words(methods), seen, unseen, track=track, known=known)
    except KeyboardInterrupt:
        raise interrupted(f"{len(known)} points are kept") from None
    about = {
        "protocol": chosen_protocol.to_dict(),
        "tasks": tasks,
        "seed": seed,
        "domains": {domain.name: domain.role for domain in found},
    }
    tuned, file = without_stale_score(chosen.into(loaded, about), loaded), kit_path(kit)
    if file.is_file():  # what the file holds in 16 bits stays so
        write_info(file, tuned.info, out)
    else:
        save_kit(tuned, out)
    known.path.unlink(missing_ok=True)  # the kit has them all
    for name, pairs in chosen.pairs.items():
        for kind, (adapters, last) in pairs.items():
            best = max(row[-1] for row in chosen.tried[name][kind])
            shares = [
                f", {what.replace('_', ' ')} {found[name][kind]:g}"
                for what, found in chosen.shares.items()
                if name in found
            ]
            rates = f"adapters {adapters:g}, last map {last:g}{''.join(shares)}"
            typer.echo(f"{name}, {kind}: {rates} ({best:.1%} on validation)")
    if chosen.threshold is not None:
        typer.echo(f"certainty above which a domain counts as seen: {chosen.threshold:.3f}")
    typer.echo(f"wrote {out}", err=True)
    if "validation" in loaded.info and "validation" not in tuned.info:
        again = "`fewshift bench kits --write` measures them again"
        typer.echo(f"without its score and scale, which were measured at other rates: {again}", err=True)
