"""tri-M, a multi-mode modulator: Simple CNAPS with FiLM mixed from domain-specific and shared parts.

Liu et al., ICCV 2021. Confirmed from code: a gate over the training domains weights a bank of FiLM vectors
(specific), attention over a second bank asked by the set's code gives the cooperative ones, and a sigmoid a
channel mixes the two; Mahalanobis classifier and set encoder are Simple CNAPS's. Ours: as there, a class of
one image has covariance 0, and for backbones narrower than the published one the number of attention heads is
what the width allows. In the table of the TSP paper the columns of tri-M and FLUTE are swapped.
"""

from __future__ import annotations

from fewshift.methods.about import About
from fewshift.methods.modulated import Modulated, modulated
from fewshift.nets.engine import Engine
from fewshift.nets.kit import Kit
from fewshift.nets.modulators import TriMModulator

PART = "trim"
ABOUT = About(
    title="tri-M, a multi-mode modulator",
    source="Liu et al., ICCV 2021",
    fidelity="inferred",
    moves="FiLM behind the norms of the blocks, by a gated hyper-network; a Gaussian a class",
    needs="a backbone, a set encoder and gated FiLM generator",
    trained_by="fewshift train trim",
)


def build(kit: Kit, engine: Engine | None = None, oracle: bool = True) -> Modulated:
    """tri-M on a kit's backbone; engine and oracle make no difference to it."""
    return modulated(kit, PART, "fewshift train trim", TriMModulator)
