"""GAP on Proto-MAML: each step's gradients with their singular values rescaled by learned factors.

Kang et al., CVPR 2023. The rule is confirmed from code (Suhyun777/CVPR23-GAP), see `core.gap`; its experiment
on Meta-Dataset was never released, so the network, first order and the numbers of steps are inferred.

`gap` finds singular vectors by an SVD of every kernel's gradient at every step, as published, which is what
makes it slow. `gap_eigen` is the same step by eigenvectors of the small Gram matrices, equal by test.
`gap_approximate` is the paper's own cheap form, which scales channels instead, and is trained by itself.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from fewshift.core.gap import by_svd
from fewshift.core.rules import gradient_adaptive
from fewshift.methods.about import About
from fewshift.methods.proto_maml import ProtoMaml, built
from fewshift.nets.engine import Engine
from fewshift.nets.kit import Kit

ABOUT = About(
    title="GAP + Proto-MAML",
    source="Kang et al., CVPR 2023",
    fidelity="inferred",
    moves="every kernel and a linear head",
    needs="weights and factors of singular values, meta-learned",
    trained_by="fewshift train maml --rule gap",
    cost="10 forward and full backward passes, 20 SVDs each",
)
ABOUT_EIGEN = replace(
    ABOUT,
    title="GAP + Proto-MAML, by eigenvectors",
    cost="10 forward and full backward passes, 20 eigen-decompositions each",
)
ABOUT_APPROXIMATE = replace(
    ABOUT,
    title="Approximate GAP + Proto-MAML",
    needs="weights and factors of channels, meta-learned",
    trained_by="fewshift train maml --rule gap-approximate",
    cost="10 forward and full backward passes",
)


def build(kit: Kit, engine: Engine | None = None, oracle: bool = True) -> ProtoMaml:
    """GAP as published, by SVD."""
    return built(kit, "gap", partial(gradient_adaptive, basis=by_svd))


def build_eigen(kit: Kit, engine: Engine | None = None, oracle: bool = True) -> ProtoMaml:
    """The same numbers, sooner."""
    return replace(built(kit, "gap"), name="gap_eigen")


def build_approximate(kit: Kit, engine: Engine | None = None, oracle: bool = True) -> ProtoMaml:
    """Approximate GAP."""
    return built(kit, "gap-approximate")
