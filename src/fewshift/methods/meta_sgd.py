"""Meta-SGD on Proto-MAML: a learned rate of either sign for every number that moves.

Li et al. 2017. Stated in the paper: θ ← θ − A∘∇L with A as large as θ. Inferred: all of A starts at the inner
rate, and the head, whose classes change from task to task, has a rate for each feature.
"""

from __future__ import annotations

from fewshift.methods.about import About
from fewshift.methods.proto_maml import ProtoMaml, built
from fewshift.nets.engine import Engine
from fewshift.nets.kit import Kit

ABOUT = About(
    title="Meta-SGD + Proto-MAML",
    source="Li et al. 2017",
    fidelity="inferred",
    moves="every kernel and a linear head",
    needs="weights and a rate for each, meta-learned",
    trained_by="fewshift train maml --rule meta-sgd",
    cost="5 forward and full backward passes",
)


def build(kit: Kit, engine: Engine | None = None, oracle: bool = True) -> ProtoMaml:
    """Proto-MAML by learned rates."""
    return built(kit, "meta-sgd")
