"""Descent whitened by what the layers read of the task's own support set: θ ← θ − β G Q.

Our own. Like TSP it multiplies each gradient by a positive definite matrix of the task, but from the side of
the inputs, and that matrix is computed instead of learned: the damped inverse of the inputs' second moment
(`fewshift.core.whitening`). `white` is plain descent with it, `start_white` descends from learned starting
values.
"""

from __future__ import annotations

from dataclasses import replace

from fewshift.methods.about import About
from fewshift.methods.build import at_tuned_rates
from fewshift.methods.gd import ABOUT as PLAIN
from fewshift.methods.gd import GradientDescent
from fewshift.methods.gd import build as build_plain
from fewshift.methods.rates import ALL_OF_IT
from fewshift.methods.tsp import TaskSpecificPreconditioning
from fewshift.methods.tsp_start import ABOUT_ALONE as FROM_STARTS
from fewshift.methods.tsp_start import build_alone as build_from_starts
from fewshift.nets.engine import Engine
from fewshift.nets.kit import Kit

ABOUT = About(
    title="plain descent, whitened by the support set's own inputs",
    source="Fewshift",
    fidelity="our own",
    moves=PLAIN.moves,
    oracle=True,
    cost="one forward pass, 40 forward and backward passes",
)
ABOUT_TUNED = ABOUT.tuned("white")
ABOUT_START = replace(
    ABOUT,
    title="descent from learned starting values, whitened likewise",
    needs=FROM_STARTS.needs,
    trained_by=FROM_STARTS.trained_by,
    cost="one pass of the dataset classifier, one forward pass, 40 forward and backward passes",
)
ABOUT_START_TUNED = ABOUT_START.tuned("start_white")


def build(kit: Kit, engine: Engine | None = None, oracle: bool = True) -> GradientDescent:
    """At TSP's published rates: whitening leaves the size of a step about as it was."""
    return replace(build_plain(kit, engine, oracle), input_share=ALL_OF_IT, name="white")


build_tuned = at_tuned_rates(build)


def build_start(kit: Kit, engine: Engine | None = None, oracle: bool = True) -> TaskSpecificPreconditioning:
    """From learned starting values, at the paper's rates."""
    return replace(build_from_starts(kit, engine, oracle), input_share=ALL_OF_IT, name="start_white")


build_start_tuned = at_tuned_rates(build_start)
