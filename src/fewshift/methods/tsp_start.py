"""TSP from learned starting values: θ_0 = Σ p_k θ_0^k, blended by the same coefficients as P.

Our own extension of the paper. Algorithm 1 learns θ_0^k of every site beside M_k from the same tasks
(`fewshift train preconditioners --train-starts`), and a task starts from their blend instead of TSA's values.
`start` is the same with P = I, so that the two parts can be told apart. The tuned forms take only a share of
what the domains have in common, of their own values and of their P, where validation says so: a domain unlike
all of them starts near what they share, or part of the way there.
"""

from __future__ import annotations

from dataclasses import replace

from fewshift.core.starts import Starts
from fewshift.errors import FewshiftError
from fewshift.methods.about import About
from fewshift.methods.build import at_tuned_rates, coefficients_of, published_rates, rate_rule
from fewshift.methods.rates import Share
from fewshift.methods.tsp import ABOUT as TSP
from fewshift.methods.tsp import TaskSpecificPreconditioning
from fewshift.methods.tsp import build as build_tsp
from fewshift.nets.choice import choose_engine
from fewshift.nets.engine import Engine
from fewshift.nets.kit import Kit

ABOUT = About(
    title="TSP† from learned starting values",
    source="Fewshift",
    fidelity="our own",
    moves=TSP.moves,
    needs="a backbone, preconditioners, starting values, a dataset classifier",
    trained_by="fewshift train preconditioners --train-starts, fewshift train classifier",
    oracle=True,
    cost=TSP.cost,
)
ABOUT_TUNED = ABOUT.tuned("tsp_start")
ABOUT_ALONE = replace(
    ABOUT,
    title="Plain descent from learned starting values",
    needs="a backbone, starting values, a dataset classifier",
)
ABOUT_ALONE_TUNED = ABOUT_ALONE.tuned("start")


def build(kit: Kit, engine: Engine | None = None, oracle: bool = True) -> TaskSpecificPreconditioning:
    """Both learned parts, at the paper's rates."""
    share = Share(oracle=oracle)
    return replace(build_tsp(kit, engine, oracle), starts=_starts(kit), start_share=share, name="tsp_start")


build_tuned = at_tuned_rates(build)


def build_alone(kit: Kit, engine: Engine | None = None, oracle: bool = True) -> TaskSpecificPreconditioning:
    """Learned starting values and P = I, at the paper's rates."""
    return TaskSpecificPreconditioning(
        engine or choose_engine(kit.backbone),
        kit.domains,
        None,
        coefficients_of(kit),
        _starts(kit),
        rate_rule(kit, published_rates(kit), oracle),
        Share(oracle=oracle),
        name="start",
    )


build_alone_tuned = at_tuned_rates(build_alone)


def _starts(kit: Kit) -> Starts:
    if kit.starts is None:
        raise FewshiftError(
            "the kit has no starting values: run fewshift train preconditioners --train-starts"
        )
    return kit.starts
