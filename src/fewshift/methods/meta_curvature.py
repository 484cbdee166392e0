"""Meta-Curvature on Proto-MAML: gradients times learned matrices over outputs, inputs and filter positions.

Park & Oliva, NeurIPS 2019. Confirmed from code (silverbottlep/maml): one square matrix a mode of a kernel,
all at the identity first. Inferred: the head has none over its classes, whose number changes.
"""

from __future__ import annotations

from fewshift.methods.about import About
from fewshift.methods.proto_maml import ProtoMaml, built
from fewshift.nets.engine import Engine
from fewshift.nets.kit import Kit

ABOUT = About(
    title="Meta-Curvature + Proto-MAML",
    source="Park & Oliva, NeurIPS 2019",
    fidelity="inferred",
    moves="every kernel and a linear head",
    needs="weights and matrices for their gradients, meta-learned",
    trained_by="fewshift train maml --rule meta-curvature",
    cost="5 forward and full backward passes",
)


def build(kit: Kit, engine: Engine | None = None, oracle: bool = True) -> ProtoMaml:
    """Proto-MAML by learned curvature."""
    return built(kit, "meta-curvature")
