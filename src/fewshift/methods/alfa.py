"""ALFA on Proto-MAML: a small network sets the rate and the weight decay of every tensor at every step.

Baik et al., NeurIPS 2020. The rule is confirmed from code (baiksung/ALFA), see `core.meta_updates.Generated`;
its experiment on Meta-Dataset was never released, so everything else is inferred: Proto-MAML's network and
head, first order, five steps in training. Ours: the generator starts at plain descent with weight decay.
"""

from __future__ import annotations

from fewshift.methods.about import About
from fewshift.methods.proto_maml import ProtoMaml, built
from fewshift.nets.engine import Engine
from fewshift.nets.kit import Kit

ABOUT = About(
    title="ALFA + Proto-MAML",
    source="Baik et al., NeurIPS 2020",
    fidelity="inferred",
    moves="every kernel and a linear head",
    needs="weights and a generator of rates, meta-learned",
    trained_by="fewshift train maml --rule alfa",
    cost="5 forward and full backward passes",
)


def build(kit: Kit, engine: Engine | None = None, oracle: bool = True) -> ProtoMaml:
    """Proto-MAML whose steps ALFA's generator sets."""
    return built(kit, "alfa")
