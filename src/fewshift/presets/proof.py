"""Does the method win? TSP†, learned starting values and both, against TSA and descent at tuned rates.

One backbone for all; each run's preconditioners, classifier and rates from VALID classes and `valid_unseen`
domains; then every protocol on identical tasks. The kit of `both` is the one to ship.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fewshift.presets.reproduce import Setup, Stage, begun


@dataclass(frozen=True)
class Run:
    """One run of Algorithm 1: its options, how its kit is made small, what its rates and rows are for."""

    learns: tuple[str, ...]
    shrinks: tuple[str, ...]
    tunes: str
    rows: tuple[str, ...]


STARTS = ("--train-starts", "--common-start", "--strangers", "4")
LOW_RANK = ("--start-rank", "48")
PAPERS = (
    *("--rate", "0.1", "--weight-decay", "0.0007", "--no-normalise"),
    *("--inner-rate", "0.1", "--inner-last-rate", "0.1"),
)
RUNS: Mapping[str, Run] = {
    "both": Run(
        (*STARTS, "--design", "bounded"),
        LOW_RANK,
        "gd,tsp_start",
        ("ncc", "pa", "tsa", "gd", "gd_tuned", "tsp_start_tuned"),
    ),
    "gram": Run(PAPERS, (), "tsp", ("tsp", "tsp_tuned")),
    "start": Run((*STARTS, "--design", "identity"), LOW_RANK, "start", ("start_tuned",)),
}
BLIND = ("gd_tuned", "tsp_start_tuned")  # without the oracle, too
PROTOCOLS = ("varying", "five-shot", "one-shot")
BASELINES = ("--baseline", "tsa,gd_tuned")


def proof(setup: Setup) -> list[Stage]:
    """Train all, choose rates, score every row under each protocol, report."""
    made, base = begun(setup)
    kits: dict[str, Stage] = {}
    for name, run in RUNS.items():
        learned = setup.train("preconditioners", *run.learns, kit=base, name=f"roots-{name}")
        told = setup.train("classifier", kit=learned.makes, name=f"told-{name}")
        small = setup.shrink(told.makes, *run.shrinks, name=f"small-{name}")
        kits[name] = setup.train("rates", "--methods", run.tunes, kit=small.makes, name=name)
        made += [learned, told, small, kits[name]]
    for protocol in PROTOCOLS:
        scored = [setup.evaluate(kits[name].makes, run.rows, protocol) for name, run in RUNS.items()]
        made += [*scored, *setup.report(scored, f"proof-{protocol}", *BASELINES)]
    blind = setup.evaluate(kits["both"].makes, BLIND, "varying", "--no-oracle")
    return [*made, blind, *setup.report([blind], "proof-no-oracle", "--baseline", "gd_tuned")]
